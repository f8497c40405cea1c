<?php
// Runs long enough for its worker to be killed in the middle of it.
usleep(3000);
echo "hello world\n";
