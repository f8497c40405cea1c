//! The real binary with whole applications, the recipes of the documentation, and what goes wrong on a machine.

mod applications;
mod booted;
mod init;
mod recipes;
mod troubles;
mod wordpress;
