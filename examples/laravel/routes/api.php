<?php
// What needs no session.

use App\Http\Controllers\Requests;
use App\Http\Controllers\Shop;
use Illuminate\Support\Facades\Route;

Route::post('/upload', [Shop::class, 'upload']);
Route::match(['GET', 'POST', 'PUT', 'PATCH'], '/echo/{rest?}', [Requests::class, 'echoed'])->where('rest', '.*');
Route::get('/changed', [Requests::class, 'changed']);
Route::get('/broken', [Requests::class, 'broken']);
Route::get('/forbidden', [Requests::class, 'forbidden']);
Route::get('/streamed', [Requests::class, 'streamed']);
Route::get('/process', [Requests::class, 'process']);
