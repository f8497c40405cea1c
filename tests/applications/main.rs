//! The real binary with whole applications, the recipes of the documentation, and what goes wrong on a machine.

mod applications;
mod recipes;
mod troubles;
mod wordpress;
