<?php
// Prints its process id, its start and its end. All processes of the machine share this clock.
$begin = hrtime(true);
usleep(1000 * (int) ($_GET['ms'] ?? 100));
echo getmypid(), ' ', $begin, ' ', hrtime(true);
