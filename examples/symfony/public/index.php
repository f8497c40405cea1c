<?php
// The front controller, and the worker file too: the runtime sees whether the application stays booted.

use App\Kernel;

// A server may say otherwise.
$_SERVER += ['APP_ENV' => 'prod', 'APP_DEBUG' => '0', 'APP_RUNTIME' => App\Runtime::class];

require_once dirname(__DIR__).'/autoload_runtime.php';

return static fn (array $context): Kernel => new Kernel($context['APP_ENV'], (bool) $context['APP_DEBUG']);
