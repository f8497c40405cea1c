<?php

namespace App;

use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\HttpKernel\TerminableInterface;
use Symfony\Component\Runtime\RunnerInterface;

/** Handles requests with one kernel, until the server says that it is enough. */
final class WorkerRunner implements RunnerInterface
{
    public function __construct(private HttpKernelInterface $kernel)
    {
    }

    public function run(): int
    {
        // A client that leaves must not end the application.
        ignore_user_abort(true);

        // What the environment and the boot said. Fields of a request are of that request alone.
        $booted = array_filter($_SERVER, static fn ($name) => !str_starts_with($name, 'HTTP_'), \ARRAY_FILTER_USE_KEY);
        $booted['APP_RUNTIME_MODE'] = 'web=1&worker=1';
        $request = $response = null;
        $handle = function () use ($booted, &$request, &$response): void {
            $_SERVER += $booted;
            $request = Request::createFromGlobals();
            $response = $this->kernel->handle($request);
            $response->send();
        };

        do {
            $more = frankenphp_handle_request($handle);
            // From here on the client has its answer.
            if ($request && $response && $this->kernel instanceof TerminableInterface) {
                $this->kernel->terminate($request, $response);
            }
            $request = $response = null;
            gc_collect_cycles();
        } while ($more);

        return 0;
    }
}
