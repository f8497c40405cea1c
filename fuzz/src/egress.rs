//! The targets of calls, and which calls are allowed: only the part of the egress that reads what callers write.
#![allow(dead_code, missing_docs)]

#[path = "../../crates/egress/src/checks.rs"]
pub mod checks;
#[path = "../../crates/egress/src/fault.rs"]
mod fault;
#[path = "../../crates/egress/src/rules.rs"]
mod rules;
#[path = "../../crates/egress/src/target.rs"]
mod target;
