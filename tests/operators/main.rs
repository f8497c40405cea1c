//! The real binary and those who run it: commands, logs, messages, status, the admin interface, `weir bench`.

mod admin;
mod alerts;
mod bench;
mod cli;
mod doctor;
mod init;
mod kubernetes;
mod log;
mod messages;
mod operators;
mod packaging;
mod pages;
mod status_page;
