<?php

namespace App;

use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Bundle\TwigBundle\TwigBundle;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

/** The application: bundles, their configuration, services and routes. */
final class Kernel extends BaseKernel
{
    use MicroKernelTrait;

    public function registerBundles(): iterable
    {
        return [new FrameworkBundle(), new TwigBundle()];
    }

    public function getProjectDir(): string
    {
        return \dirname(__DIR__);
    }

    protected function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', [
            'secret' => '%env(APP_SECRET)%',
            'http_method_override' => true,
            'router' => ['utf8' => true],
            'session' => [
                'storage_factory_id' => 'session.storage.factory.native',
                'handler_id' => 'session.handler.native_file',
                'save_path' => '%kernel.project_dir%/var/sessions',
                'cookie_samesite' => 'lax',
            ],
        ]);
        $container->extension('twig', ['default_path' => '%kernel.project_dir%/templates', 'strict_variables' => true]);
        $container->parameters()->set('env(APP_SECRET)', 'only an example');
        $container->services()
            ->defaults()->autowire()->autoconfigure()
            ->load('App\\', __DIR__.'/{Catalogue,Visitor}.php')
            ->load('App\\Controller\\', __DIR__.'/Controller/')->tag('controller.service_arguments');
    }

    protected function configureRoutes(RoutingConfigurator $routes): void
    {
        $shop = static fn (string $name, string $path, array $methods) =>
            $routes->add($name, $path)->controller([Controller\Shop::class, $name])->methods($methods);
        $shop('list', '/', ['GET']);
        $shop('item', '/item/{number}', ['GET'])->requirements(['number' => '\d+']);
        $shop('cart', '/cart', ['GET']);
        $shop('add', '/cart', ['POST']);
        $shop('remove', '/cart/{number}', ['DELETE']);
        $shop('upload', '/upload', ['POST']);
        $shop('old', '/old/{number}', ['GET']);

        $requests = static fn (string $name, string $path, array $methods) =>
            $routes->add($name, $path)->controller([Controller\Requests::class, $name])->methods($methods);
        $requests('echoed', '/echo/{rest}', ['GET', 'POST', 'PUT', 'PATCH'])->requirements(['rest' => '.*'])->defaults(['rest' => '']);
        $requests('remember', '/remember', ['GET']);
        $requests('broken', '/broken', ['GET']);
        $requests('forbidden', '/forbidden', ['GET']);
        $requests('streamed', '/streamed', ['GET']);
        $requests('process', '/process', ['GET']);
    }
}
