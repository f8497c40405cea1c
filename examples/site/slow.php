<?php
// Waits before it answers: slow.php?ms=500. At most ten seconds.
header('Content-Type: text/plain; charset=utf-8');
$ms = max(0, min(10000, (int) ($_GET['ms'] ?? 1000)));
usleep($ms * 1000);
echo "slept for $ms ms in process ", getmypid(), "\n";
