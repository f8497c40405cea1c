<?php
// Installs WordPress into its empty database and writes ten posts: `php wordpress.php ROOT`.
$_SERVER += ['HTTP_HOST' => 'bench.example', 'REQUEST_URI' => '/', 'SERVER_PROTOCOL' => 'HTTP/1.1'];
define('WP_INSTALLING', true);
require $argv[1] . '/wp-load.php';
require ABSPATH . 'wp-admin/includes/upgrade.php';
wp_install('Bench', 'author', 'author@example.org', false, '', 'not a secret');
$paragraph = "<!-- wp:paragraph -->\n<p>" . str_repeat('Water flows over the weir, and the weir stands. ', 12)
    . "</p>\n<!-- /wp:paragraph -->\n\n";
for ($number = 1; $number <= 10; $number++) {
    wp_insert_post(['post_title' => "Post $number", 'post_status' => 'publish',
                    'post_content' => str_repeat($paragraph, 4)]);
}
echo 'installed ', wp_count_posts()->publish, ' posts';
