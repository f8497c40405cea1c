<?php
// A script as in many published comparisons: a small page with little work.
for ($i = 0; $i < 1000; $i++) {
    echo "hello world\n";
}
