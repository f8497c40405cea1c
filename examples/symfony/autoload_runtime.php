<?php
// Runs what the front controller returns. With Composer, symfony/runtime writes this file to vendor/.

if (true === (require_once __DIR__.'/autoload.php') || empty($_SERVER['SCRIPT_FILENAME'])) {
    return;
}

$application = require $_SERVER['SCRIPT_FILENAME'];
$runtime = new $_SERVER['APP_RUNTIME'](['project_dir' => __DIR__]);
[$application, $arguments] = $runtime->getResolver($application)->resolve();

exit($runtime->getRunner($application(...$arguments))->run());
