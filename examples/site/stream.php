<?php
// Sends ten server-sent events, one each 100 ms. weir passes each one on at once.
header('Content-Type: text/event-stream');
header('Cache-Control: no-store');
while (ob_get_level() > 0) {
    ob_end_flush();
}
for ($number = 1; $number <= 10; $number++) {
    echo "data: $number\n\n";
    flush();
    usleep(100000);
}
echo "event: done\ndata: 10 events from process ", getmypid(), "\n\n";
