<!DOCTYPE html>
<html lang="{{ app()->getLocale() }}">
<head>
<meta charset="utf-8">
<title>@hasSection('title')@yield('title') – @endif{{ config('app.name') }}</title>
</head>
<body>
<nav>@foreach ($pages as $path => $name)<a href="{{ url($path) }}">{{ $name }}</a> @endforeach</nav>
<main>
@yield('content')
</main>
</body>
</html>
