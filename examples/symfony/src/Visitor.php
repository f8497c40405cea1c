<?php

namespace App;

use Symfony\Contracts\Service\ResetInterface;

/** Who the request is from. An application that stays booted must forget that after each request: Symfony calls reset(). */
final class Visitor implements ResetInterface
{
    public ?string $name = null;

    /** Requests that this process has handled. */
    public int $requests = 0;

    public function reset(): void
    {
        $this->name = null;
    }
}
