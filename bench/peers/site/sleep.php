<?php
// Says which worker ran it, and from when to when, on the clock that all processes of the machine share.
$begin = hrtime(true);
usleep(1000 * (int) ($_GET['ms'] ?? 100));
echo getmypid(), ' ', $begin, ' ', hrtime(true);
