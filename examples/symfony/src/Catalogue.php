<?php

namespace App;

/** What the shop sells. */
final class Catalogue
{
    private const KINDS = ['sluice', 'gate', 'float', 'gauge', 'grille', 'pump', 'valve', 'pipe'];
    private const ON_A_PAGE = 12;

    /** @return array{number: int, name: string, price: int, text: string}|null */
    public function item(int $number): ?array
    {
        if ($number < 1 || $number > 40) {
            return null;
        }
        $kind = self::KINDS[$number % \count(self::KINDS)];

        return ['number' => $number, 'name' => ucfirst($kind)." no. $number", 'price' => 199 + 37 * $number,
            'text' => "A <b>$kind</b> & what belongs to it: \"as good as new\", in size $number."];
    }

    /** @return list<array{number: int, name: string, price: int, text: string}> a page of those whose names contain this text */
    public function search(string $text, int $page = 1): array
    {
        $all = array_map($this->item(...), range(1, 40));
        $found = array_filter($all, static fn ($item) => '' === $text || false !== stripos($item['name'], $text));

        return \array_slice($found, self::ON_A_PAGE * (max(1, $page) - 1), self::ON_A_PAGE);
    }
}
