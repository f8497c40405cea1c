<?php
// Shows the fields of a posted form. It stores nothing.
header('Content-Type: text/plain; charset=utf-8');
if ($_SERVER['REQUEST_METHOD'] !== 'POST') {
    http_response_code(405);
    header('Allow: POST');
    echo "Post something to this page: a name, or a file.\n";
    exit;
}
if (isset($_POST['name']) && is_string($_POST['name'])) {
    echo 'Hello, ', htmlspecialchars($_POST['name'], ENT_QUOTES | ENT_SUBSTITUTE, 'UTF-8'), ".\n";
}
foreach ($_FILES as $file) {
    if (is_array($file['name'])) {
        continue;
    }
    $name = htmlspecialchars(basename($file['name']), ENT_QUOTES | ENT_SUBSTITUTE, 'UTF-8');
    echo match ($file['error']) {
        UPLOAD_ERR_OK => "$name: {$file['size']} bytes, SHA-256 " . hash_file('sha256', $file['tmp_name']) . "\n",
        UPLOAD_ERR_INI_SIZE => "$name is larger than PHP accepts (upload_max_filesize: " . ini_get('upload_max_filesize') . ").\n",
        default => "$name did not arrive (error {$file['error']}).\n",
    };
}
