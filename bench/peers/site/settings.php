<?php
// The settings of PHP. They must be the same for all servers, otherwise the comparison is not valid.
$settings = [];
foreach (['opcache.enable', 'opcache.validate_timestamps', 'opcache.revalidate_freq', 'opcache.memory_consumption',
          'opcache.max_accelerated_files', 'opcache.jit', 'opcache.interned_strings_buffer', 'output_buffering',
          'memory_limit', 'display_errors', 'log_errors', 'error_reporting', 'variables_order', 'zend.assertions',
          'realpath_cache_size', 'session.gc_divisor'] as $name) {
    $settings[$name] = ini_get($name);
}
$status = function_exists('opcache_get_status') ? opcache_get_status(false) : false;
$settings['OPcache at work'] = $status !== false && $status['opcache_enabled'];
$settings['version'] = PHP_VERSION;
// Each SAPI has an extension of its own, and some are built with pcntl.
$extensions = array_diff(get_loaded_extensions(), ['cgi-fcgi', 'apache2handler', 'pcntl']);
sort($extensions);
$settings['extensions'] = implode(' ', $extensions);
echo json_encode($settings);
