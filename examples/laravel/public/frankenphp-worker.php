<?php
// The worker file: boots the application once, and hands requests to it.

if (!($_SERVER['FRANKENPHP_WORKER'] ?? false) || !function_exists('frankenphp_handle_request')) {
    http_response_code(500);
    exit("This file runs only where an application stays booted. index.php is for others.\n");
}

// A client that leaves must not end the application.
ignore_user_abort(true);

$app = require dirname(__DIR__).'/bootstrap/app.php';
$worker = new App\Worker($app);
$worker->warm('/');
$handled = 0;
$most = (int) ($_ENV['MAX_REQUESTS'] ?? $_SERVER['MAX_REQUESTS'] ?? 1000);
while ($handled < $most && frankenphp_handle_request($worker->handle(...))) {
    $handled++;
    // From here on the client has its answer.
    $worker->terminate();
}
