<?php
// Calls other servers, one after the other, with a new curl handle for each call, as applications do. Prints the time of
// each call.
//   via      base URL of a proxy that accepts http://PROXY/HOST:PORT/path; "egress": weir's own; empty: direct calls
//   hosts    HOST:PORT, separated by commas, called in turn
//   calls    the number of calls
//   posts    if it is N, every Nth call is a POST
//   ca       the CA that direct calls trust
//   address  the address of all hosts, if names are not looked up
$via = $_GET['via'] ?? '';
$base = $via === 'egress' ? (string) getenv('WEIR_EGRESS') : $via;
$hosts = explode(',', $_GET['hosts']);
$posts = (int) ($_GET['posts'] ?? 0);
$begin = hrtime(true);
$calls = [];
for ($number = 0; $number < (int) $_GET['calls']; $number++) {
    $host = $hosts[$number % count($hosts)];
    $post = $posts > 0 && $number % $posts === $posts - 1;
    $path = $post ? '/echo' : '/1k';
    $asked = hrtime(true);
    $curl = curl_init($base !== '' ? "$base/$host$path" : "https://$host$path");
    curl_setopt_array($curl, [CURLOPT_RETURNTRANSFER => true, CURLOPT_TIMEOUT => 30]);
    if ($base === '') {
        curl_setopt($curl, CURLOPT_CAINFO, $_GET['ca']);
        if (isset($_GET['address'])) {
            curl_setopt($curl, CURLOPT_RESOLVE, ["$host:{$_GET['address']}"]);
        }
    }
    if ($post) {
        curl_setopt($curl, CURLOPT_POSTFIELDS, "call-$number");
        curl_setopt($curl, CURLOPT_HTTPHEADER, ['Content-Type: text/plain']);
    }
    $body = curl_exec($curl);
    $status = curl_getinfo($curl, CURLINFO_RESPONSE_CODE);
    $error = curl_error($curl);
    curl_close($curl);
    $right = $status === 200 && ($post ? $body === "call-$number" : strlen((string) $body) === 1024);
    $calls[] = [$asked, hrtime(true), $host, $right ? '' : "$path: $status $error " . substr((string) $body, 0, 100)];
    if (!$right) {
        http_response_code(500);
    }
}
header('Content-Type: application/json');
echo json_encode(['begin' => $begin, 'end' => hrtime(true), 'calls' => $calls]);
