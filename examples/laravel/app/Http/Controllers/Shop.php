<?php

namespace App\Http\Controllers;

use App\Catalogue;
use App\Visitor;
use Illuminate\Http\JsonResponse;
use Illuminate\Http\RedirectResponse;
use Illuminate\Http\Request;
use Illuminate\Routing\Controller;
use Illuminate\View\View;

/** Pages of a shop, with a cart in the session. */
final class Shop extends Controller
{
    public function __construct(private Catalogue $catalogue)
    {
    }

    public function list(Request $request, Visitor $visitor): View
    {
        // The first one that is named stays for the whole request. A later request must not see it.
        $visitor->name ??= $request->query('name');
        $text = (string) $request->query('q');

        return view('list', ['items' => $this->catalogue->search($text, (int) $request->query('page', '1')), 'text' => $text, 'visitor' => $visitor->name]);
    }

    public function item(int $number): View
    {
        return view('item', ['item' => $this->catalogue->item($number) ?? abort(404)]);
    }

    public function cart(Request $request): View
    {
        return view('cart', ['cart' => $request->session()->get('cart', [])]);
    }

    public function add(Request $request): RedirectResponse
    {
        $valid = validator($request->all(), ['number' => 'required|integer', 'note' => 'nullable|string|max:40']);
        if ($valid->fails()) {
            return redirect('/cart', 303)->withErrors($valid);
        }
        $item = $this->catalogue->item((int) $request->input('number')) ?? abort(404);
        $request->session()->push('cart', ['name' => $item['name'], 'note' => (string) $request->input('note')]);

        return redirect('/cart', 303)->with('notice', "{$item['name']} is in the cart");
    }

    public function remove(Request $request, int $number): RedirectResponse
    {
        $cart = $request->session()->get('cart', []);
        unset($cart[$number]);
        $request->session()->put('cart', array_values($cart));

        return redirect('/cart', 303);
    }

    public function upload(Request $request): JsonResponse
    {
        $files = [];
        foreach ($request->allFiles() as $field => $file) {
            $files[$field] = ['name' => $file->getClientOriginalName(), 'type' => $file->getClientMimeType(),
                'size' => $file->getSize(), 'sha1' => sha1_file($file->getPathname())];
        }

        return response()->json(['files' => $files, 'fields' => $request->post()], 201);
    }

    public function old(int $number): RedirectResponse
    {
        return redirect()->route('item', $number, 301);
    }
}
