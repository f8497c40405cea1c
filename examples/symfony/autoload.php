<?php
// The libraries of Debian's packages, and the classes of src/. With Composer, this is vendor/autoload.php.

require_once 'Symfony/Bundle/FrameworkBundle/autoload.php';
require_once 'Symfony/Bundle/TwigBundle/autoload.php';
require_once 'Symfony/Component/Runtime/autoload.php';

spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'App\\')) {
        $file = __DIR__.'/src/'.strtr(substr($class, 4), '\\', '/').'.php';
        if (is_file($file)) {
            require $file;
        }
    }
});
