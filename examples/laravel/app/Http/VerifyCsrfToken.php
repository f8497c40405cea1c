<?php

namespace App\Http;

use Illuminate\Foundation\Http\Middleware\VerifyCsrfToken as Middleware;

/** Refuses forms of other sites. */
final class VerifyCsrfToken extends Middleware
{
}
