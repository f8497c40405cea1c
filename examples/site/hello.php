<?php
// Shows what a script knows of its request, as text.
header('Content-Type: text/plain; charset=utf-8');
$names = ['REQUEST_METHOD', 'REQUEST_URI', 'SCRIPT_NAME', 'PATH_INFO', 'QUERY_STRING', 'SERVER_PROTOCOL', 'REMOTE_ADDR'];
foreach ($names as $name) {
    printf("%-16s %s\n", $name, $_SERVER[$name] ?? '');
}
