<?php
echo "Hello from PHP ", PHP_VERSION, "\n";
