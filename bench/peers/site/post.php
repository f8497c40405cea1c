<?php
// Notes its start and its end in a file, and returns the body of the request.
$name = file_get_contents('php://input');
$log = __DIR__ . '/posts.log';
file_put_contents($log, "begun $name\n", FILE_APPEND);
usleep(3000);
file_put_contents($log, "ended $name\n", FILE_APPEND);
echo $name;
