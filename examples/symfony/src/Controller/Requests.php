<?php

namespace App\Controller;

use App\Visitor;
use Symfony\Component\HttpFoundation\Cookie;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpFoundation\StreamedResponse;
use Symfony\Component\HttpKernel\Exception\AccessDeniedHttpException;

/** What the application sees of a request, and answers of other kinds than pages. */
final class Requests
{
    private static int $handled = 0;

    public function echoed(Request $request, string $rest): Response
    {
        return new JsonResponse([
            'method' => $request->getMethod(),
            'uri' => $request->getUri(),
            'path' => $request->getPathInfo(),
            'rest' => $rest,
            'query' => $request->query->all(),
            'form' => $request->request->all(),
            'cookies' => $request->cookies->all(),
            'json' => 'json' === $request->getContentType() ? $request->toArray() : null,
            'body' => sha1($request->getContent()),
            'type' => $request->headers->get('Content-Type'),
            'agent' => $request->headers->get('User-Agent'),
            'user' => $request->getUser(),
            'password' => $request->getPassword(),
            'languages' => $request->getLanguages(),
            'globals' => [$_GET, $_POST, $_COOKIE, $_FILES],
        ]);
    }

    public function remember(Request $request): Response
    {
        $count = $request->cookies->getInt('visits') + 1;
        $response = new Response("visit $count\n", headers: ['Content-Type' => 'text/plain', 'X-Visits' => (string) $count]);
        $response->headers->setCookie(new Cookie('visits', (string) $count));
        $response->headers->setCookie(new Cookie('last', (string) $request->query->get('page'), sameSite: Cookie::SAMESITE_STRICT));

        return $response;
    }

    public function broken(): Response
    {
        throw new \RuntimeException('broken as asked');
    }

    public function forbidden(): Response
    {
        throw new AccessDeniedHttpException('not for you');
    }

    public function streamed(Request $request): Response
    {
        return new StreamedResponse(static function () use ($request): void {
            foreach (range(1, $request->query->getInt('lines', 3)) as $line) {
                echo "line $line\n";
                flush();
            }
        }, headers: ['Content-Type' => 'text/plain']);
    }

    /** Whether the application stays booted: how often this process has come here. */
    public function process(Visitor $visitor): Response
    {
        return new JsonResponse(['pid' => getmypid(), 'handled' => ++self::$handled, 'of_service' => ++$visitor->requests]);
    }
}
