<?php

namespace App;

/** Who the request is from. A scoped service: a later request gets a new one. */
final class Visitor
{
    public ?string $name = null;
}
