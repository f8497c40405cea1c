<?php

namespace App;

use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\Runtime\RunnerInterface;
use Symfony\Component\Runtime\SymfonyRuntime;

/** Symfony's runtime, which gives a kernel to the worker's loop if there is one. Symfony's own does so from 7.4 on. */
final class Runtime extends SymfonyRuntime
{
    public function getRunner(?object $application): RunnerInterface
    {
        if ($application instanceof HttpKernelInterface && ($_SERVER['FRANKENPHP_WORKER'] ?? false)) {
            return new WorkerRunner($application);
        }

        return parent::getRunner($application);
    }
}
