<?php
// The libraries of Debian's packages, and the classes of app/. With Composer, this is vendor/autoload.php.

require_once 'Illuminate/autoload.php';

spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'App\\')) {
        $file = __DIR__.'/app/'.strtr(substr($class, 4), '\\', '/').'.php';
        if (is_file($file)) {
            require $file;
        }
    }
});
