<?php

return [
    'default' => 'stderr',
    'deprecations' => 'null',
    'channels' => [
        'stderr' => ['driver' => 'monolog', 'level' => 'error', 'handler' => Monolog\Handler\StreamHandler::class, 'with' => ['stream' => 'php://stderr']],
        'null' => ['driver' => 'monolog', 'handler' => Monolog\Handler\NullHandler::class],
    ],
];
