@extends('layout')
@section('content')
<h1>{{ $visitor ? "Welcome, $visitor" : 'Welcome' }}</h1>
<form><input name="q" value="{{ $text }}"><button>Search</button></form>
<ul>
@forelse ($items as $item)
<li class="{{ $loop->even ? 'even' : 'odd' }}"><a href="{{ route('item', $item['number']) }}">{{ $loop->iteration }}. {{ $item['name'] }}</a>
{{ number_format($item['price'] / 100, 2) }} <p>{{ $item['text'] }}</p></li>
@empty
<li>Nothing is called “{{ $text }}”.</li>
@endforelse
</ul>
@endsection
