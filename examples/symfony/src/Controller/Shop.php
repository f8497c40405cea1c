<?php

namespace App\Controller;

use App\Catalogue;
use App\Visitor;
use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;

/** Pages of a shop, with a cart in the session. */
final class Shop extends AbstractController
{
    public function __construct(private Catalogue $catalogue, private Visitor $visitor)
    {
    }

    public function list(Request $request): Response
    {
        // The first one that is named stays for the whole request. A later request must not see it.
        $this->visitor->name ??= $request->query->get('name');
        $text = (string) $request->query->get('q');

        return $this->render('list.html.twig', ['items' => $this->catalogue->search($text, $request->query->getInt('page', 1)), 'text' => $text, 'visitor' => $this->visitor->name]);
    }

    public function item(int $number): Response
    {
        return $this->render('item.html.twig', ['item' => $this->catalogue->item($number) ?? throw $this->createNotFoundException()]);
    }

    public function cart(Request $request): Response
    {
        $session = $request->getSession();

        return $this->render('cart.html.twig', ['cart' => $session->get('cart', []), 'messages' => $session->getFlashBag()->all()]);
    }

    public function add(Request $request): Response
    {
        $item = $this->catalogue->item($request->request->getInt('number')) ?? throw $this->createNotFoundException();
        $session = $request->getSession();
        $session->set('cart', [...$session->get('cart', []), ['name' => $item['name'], 'note' => (string) $request->request->get('note')]]);
        $this->addFlash('notice', "{$item['name']} is in the cart");

        return $this->redirectToRoute('cart', status: Response::HTTP_SEE_OTHER);
    }

    public function remove(Request $request, int $number): Response
    {
        $session = $request->getSession();
        $cart = $session->get('cart', []);
        unset($cart[$number]);
        $session->set('cart', array_values($cart));

        return $this->redirectToRoute('cart', status: Response::HTTP_SEE_OTHER);
    }

    public function upload(Request $request): Response
    {
        $files = [];
        foreach ($request->files->all() as $field => $file) {
            $files[$field] = $file ? ['name' => $file->getClientOriginalName(), 'type' => $file->getClientMimeType(),
                'size' => $file->getSize(), 'sha1' => sha1_file($file->getPathname())] : null;
        }

        return new JsonResponse(['files' => $files, 'fields' => $request->request->all()], Response::HTTP_CREATED);
    }

    public function old(int $number): Response
    {
        return $this->redirectToRoute('item', ['number' => $number], Response::HTTP_MOVED_PERMANENTLY);
    }
}
