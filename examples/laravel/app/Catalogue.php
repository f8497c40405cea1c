<?php

namespace App;

/** What the shop sells. */
final class Catalogue
{
    private const KINDS = ['sluice', 'gate', 'float', 'gauge', 'grille', 'pump', 'valve', 'pipe'];

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

    /** @return list<array{number: int, name: string, price: int, text: string}> whose names contain this text */
    public function search(string $text): array
    {
        $all = array_map($this->item(...), range(1, 40));

        return array_values(array_filter($all, static fn ($item) => '' === $text || false !== stripos($item['name'], $text)));
    }
}
