<?php
// Work for PHP's engine alone: arrays, calls, strings, regular expressions. It waits for nothing.

function mixed(int $a, int $b): int
{
    return ($a * 31 + $b) % 65521;
}

final class Counter
{
    private array $counts = [];

    public function add(string $word): void
    {
        $this->counts[$word] = ($this->counts[$word] ?? 0) + 1;
    }

    public function total(): int
    {
        return array_sum($this->counts);
    }
}

$sum = 0;
$list = range(1, 500);
for ($round = 0; $round < 40; $round++) {
    $list = array_map(static fn(int $value): int => mixed($value, $round), $list);
    sort($list);
    foreach ($list as $key => $value) {
        $sum = mixed($sum, $value + $key);
    }
}
$counter = new Counter();
$text = str_repeat('The quick brown fox jumps over the lazy dog. ', 40);
for ($round = 0; $round < 20; $round++) {
    foreach (explode(' ', strtolower($text)) as $word) {
        $counter->add(trim($word, '.'));
    }
    $sum += preg_match_all('/\b(\w)(\w*)\b/', $text, $found);
    $sum += strlen(preg_replace_callback('/o(\w)/', static fn(array $match): string => strtoupper($match[1]), $text));
    $sum += strlen(htmlspecialchars(substr($text, $round, 400))) + crc32(sprintf('%05d-%s', $round, md5($text)));
}
echo 'computed ', $sum + $counter->total(), "\n";
