<?php
// Pages, with session and protected forms.

use App\Http\Controllers\Requests;
use App\Http\Controllers\Shop;
use Illuminate\Support\Facades\Route;

Route::get('/', [Shop::class, 'list']);
Route::get('/item/{number}', [Shop::class, 'item'])->whereNumber('number')->name('item');
Route::get('/cart', [Shop::class, 'cart']);
Route::post('/cart', [Shop::class, 'add']);
Route::delete('/cart/{number}', [Shop::class, 'remove'])->whereNumber('number');
Route::get('/old/{number}', [Shop::class, 'old'])->whereNumber('number');
Route::get('/remember', [Requests::class, 'remember']);
