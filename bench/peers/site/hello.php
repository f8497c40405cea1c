<?php
// The script of many a published comparison: enough output to be a page, enough work to be PHP.
for ($i = 0; $i < 1000; $i++) {
    echo "hello world\n";
}
