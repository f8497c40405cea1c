//! The targets of calls, and which calls are allowed: only the part of the egress that reads what callers write.
#![allow(dead_code, missing_docs)]

#[path = "../../src/egress/checks.rs"]
pub mod checks;
#[path = "../../src/egress/fault.rs"]
mod fault;
#[path = "../../src/egress/rules.rs"]
mod rules;
#[path = "../../src/egress/target.rs"]
mod target;
