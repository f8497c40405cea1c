<?php

namespace App\Exceptions;

use Illuminate\Foundation\Exceptions\Handler as ExceptionHandler;

/** What becomes of exceptions: Laravel's pages and log. */
final class Handler extends ExceptionHandler
{
}
