<?php

namespace App\Http\Controllers;

use Illuminate\Http\JsonResponse;
use Illuminate\Http\Request;
use Illuminate\Http\Response;
use Illuminate\Routing\Controller;
use RuntimeException;
use Symfony\Component\HttpFoundation\StreamedResponse;

/** What the application sees of a request, and answers of other kinds than pages. */
final class Requests extends Controller
{
    private static int $handled = 0;

    public function echoed(Request $request, string $rest = ''): JsonResponse
    {
        return response()->json([
            'method' => $request->method(),
            'uri' => $request->fullUrl(),
            'helper' => request()->path(),
            'url' => url('/x'),
            'rest' => $rest,
            'query' => $request->query(),
            'form' => $request->post(),
            'cookies' => $request->cookies->all(),
            'json' => $request->isJson() ? $request->json()->all() : null,
            'body' => sha1($request->getContent()),
            'type' => $request->header('Content-Type'),
            'agent' => $request->userAgent(),
            'user' => $request->getUser(),
            'password' => $request->getPassword(),
            'languages' => $request->getLanguages(),
            'locale' => app()->getLocale(),
            'setting' => config('app.note'),
            'globals' => [$_GET, $_POST, $_COOKIE, $_FILES],
        ]);
    }

    /** Changes what belongs to this request alone: a setting and the language. */
    public function changed(Request $request): Response
    {
        config(['app.note' => $request->query('note')]);
        app()->setLocale('de');

        return response(config('app.note').' '.app()->getLocale()."\n", 200, ['Content-Type' => 'text/plain']);
    }

    public function remember(Request $request): Response
    {
        $count = (int) $request->cookie('visits') + 1;
        cookie()->queue('last', (string) $request->query('page'), 60);

        return response("visit $count\n", 200, ['Content-Type' => 'text/plain', 'X-Visits' => $count])->cookie('visits', (string) $count, 60);
    }

    public function broken(): never
    {
        throw new RuntimeException('broken as asked');
    }

    public function forbidden(): never
    {
        abort(403, 'not for you');
    }

    public function streamed(Request $request): StreamedResponse
    {
        return response()->stream(static function () use ($request): void {
            foreach (range(1, (int) $request->query('lines', '3')) as $line) {
                echo "line $line\n";
                flush();
            }
        }, 200, ['Content-Type' => 'text/plain']);
    }

    /** Whether the application stays booted: how often this process has come here. */
    public function process(): JsonResponse
    {
        return response()->json(['pid' => getmypid(), 'handled' => ++self::$handled]);
    }
}
