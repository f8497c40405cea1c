//! Compares weir, called as php-fpm, with the real php-fpm: the same command lines, the same files, the same signals.

mod access_log;
mod command_line;
mod configurations;
mod control;
mod counts;
mod debian;
mod environment;
mod generated;
mod heads;
mod listen;
mod logs;
mod modes;
mod one_load;
mod pages;
mod php_start;
mod requests;
mod roles;
mod service_manager;
mod signals;
mod starts;
mod support;
mod syslog;
mod transcript;
mod users;
