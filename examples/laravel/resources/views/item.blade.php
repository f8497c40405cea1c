@extends('layout')
@section('title', $item['name'])
@section('content')
<h1>{{ $item['name'] }}</h1>
<p>{{ $item['text'] }}</p>
<form method="post" action="{{ url('/cart') }}">
@csrf
<input type="hidden" name="number" value="{{ $item['number'] }}"><input name="note"><button>{{ number_format($item['price'] / 100, 2) }}</button>
</form>
@endsection
