//! The real binary and FastCGI: PHP-FPM, php-cgi and other programs behind it, web servers before it, servers that fail.

mod command;
mod failures;
mod front;
mod heads;
mod leaving;
mod php;
mod reloads;
mod servers;
mod upstreams;
mod waiting;
mod web_servers;
mod workers;
