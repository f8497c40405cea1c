<?php

namespace App;

use Illuminate\Container\Container;
use Illuminate\Contracts\Auth\Access\Gate;
use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Contracts\Http\Kernel;
use Illuminate\Foundation\Application;
use Illuminate\Foundation\Bootstrap\RegisterProviders;
use Illuminate\Foundation\Bootstrap\SetRequestForConsole;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Facade;
use Illuminate\Support\Str;
use ReflectionMethod;
use Symfony\Component\HttpFoundation\Response;
use Throwable;

/** Handles requests with an application that was booted once. Each has a copy of it, which is thrown away afterwards. This is what
 *  Laravel Octane does, as far as this application needs it. */
final class Worker
{
    /** Made at the start, so that copies share them. */
    private const WARM = ['config', 'cookie', 'encrypter', 'files', 'hash', 'log', 'router', 'routes', 'session', 'session.store',
        'translator', 'url', 'view'];

    private ?Application $copy = null;
    private ?Request $request = null;
    private ?Response $response = null;

    public function __construct(private Application $app)
    {
        $kernel = $app->make(Kernel::class);
        $steps = (new ReflectionMethod($kernel, 'bootstrappers'))->invoke($kernel);
        // There is no request yet. URLs that providers make at the start have the host of `app.url`.
        array_splice($steps, array_search(RegisterProviders::class, $steps, true), 0, [SetRequestForConsole::class]);
        $app->bootstrapWith($steps);
        $app->loadDeferredProviders();
        foreach (self::WARM as $service) {
            if ($app->bound($service)) {
                $app->make($service);
            }
        }
    }

    /** One request, up to its answer. */
    public function handle(): void
    {
        $copy = $this->copy = clone $this->app;
        $this->use($copy);
        try {
            $this->request = Request::capture();
            $this->prepare($copy, $this->request);
            ob_start();
            $response = $copy->make(Kernel::class)->handle($this->request);
            $printed = ob_get_level() > 0 ? ob_get_clean() : '';
            // What was printed comes first, as it does without a worker.
            echo $printed;
            $this->response = $response;
            $response->send();
        } catch (Throwable $error) {
            $copy->make(ExceptionHandler::class)->report($error);
            (new Response('Internal Server Error', 500, ['Content-Type' => 'text/plain']))->send();
        }
    }

    /** A request of the boot, whose answer nobody gets: what a page needs is then loaded once, and not by each process that is
     *  forked from this one. */
    public function warm(string $uri): void
    {
        $copy = $this->copy = clone $this->app;
        $this->use($copy);
        ob_start();
        try {
            $this->request = Request::create($uri);
            $this->prepare($copy, $this->request);
            $this->response = $copy->make(Kernel::class)->handle($this->request);
        } catch (Throwable $error) {
            // The requests of clients will tell.
            $copy->make(ExceptionHandler::class)->report($error);
        }
        ob_end_clean();
        $this->terminate();
    }

    /** What happens after the answer. */
    public function terminate(): void
    {
        if (!$this->copy) {
            return;
        }
        if ($this->request && $this->response) {
            $this->copy->make(Kernel::class)->terminate($this->request, $this->response);
            $this->request->route()?->flushController();
        }
        $this->copy->forgetScopedInstances();
        $this->copy->flush();
        $engines = $this->app->make('view.engine.resolver');
        $engines->forget('blade');
        $engines->forget('php');
        $this->copy = $this->request = $this->response = null;
        $this->use($this->app);
        gc_collect_cycles();
    }

    /** Facades and helpers mean this application. */
    private function use(Application $app): void
    {
        $app->instance('app', $app);
        $app->instance(Container::class, $app);
        Container::setInstance($app);
        Facade::clearResolvedInstances();
        Facade::setFacadeApplication($app);
    }

    /** The copy gets its own configuration; services that all copies share get the copy, and forget the last request. */
    private function prepare(Application $copy, Request $request): void
    {
        $copy->instance('config', clone $copy['config']);
        $copy->instance('url', clone $copy['url']);
        foreach (['router', 'routes', 'session', 'validator', 'view', Gate::class] as $service) {
            if ($copy->resolved($service)) {
                $copy->make($service)->setContainer($copy);
            }
        }
        foreach (['db', 'filesystem', 'log', Kernel::class] as $service) {
            $shared = $copy->resolved($service) ? $copy->make($service) : null;
            if ($shared && method_exists($shared, 'setApplication')) {
                $shared->setApplication($copy);
            }
        }
        $copy['view']->share('app', $copy);
        $copy['cookie']->flushQueuedCookies();
        $session = $copy['session']->driver();
        $session->flush();
        $session->regenerate();
        if ($copy->resolved('auth')) {
            $copy['auth']->forgetGuards();
        }
        $copy['translator']->setLocale($copy['config']['app.locale']);
        $copy['translator']->setFallback($copy['config']['app.fallback_locale']);
        if (method_exists(Str::class, 'flushCache')) {
            Str::flushCache();
        }
        $this->app->instance('request', $request);
        $copy->instance('request', $request);
    }
}
