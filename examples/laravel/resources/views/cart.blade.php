@extends('layout')
@section('content')
@if (session('notice'))<p class="notice">{{ session('notice') }}</p>@endif
@foreach ($errors->all() as $error)<p class="error">{{ $error }}</p>@endforeach
<ol>
@forelse ($cart as $line)
<li>{{ $line['name'] }}: {{ $line['note'] }}</li>
@empty
<li>Empty</li>
@endforelse
</ol>
@endsection
