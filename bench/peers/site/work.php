<?php
// Long enough to be in the middle of it when its worker dies.
usleep(3000);
echo "hello world\n";
