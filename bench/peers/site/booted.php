<?php
// One line, by a worker that stays, or by a script that runs for each request.
$line = static function (): void {
    echo "hello world\n";
};
if (!isset($_SERVER['FRANKENPHP_WORKER'])) {
    $line();
    return;
}
while (frankenphp_handle_request($line)) {
}
