<?php

namespace App\Providers;

use App\Catalogue;
use App\Visitor;
use Illuminate\Support\Facades\View;
use Illuminate\Support\ServiceProvider;

/** The application's services. */
final class AppServiceProvider extends ServiceProvider
{
    public function register(): void
    {
        $this->app->singleton(Catalogue::class);
        // One for each request, also where the application stays booted.
        $this->app->scoped(Visitor::class);
    }

    public function boot(): void
    {
        View::composer('layout', static fn ($view) => $view->with('pages', ['/' => 'List', '/cart' => 'Cart']));
    }
}
