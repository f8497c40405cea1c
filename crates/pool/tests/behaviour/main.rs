//! What a pool promises, checked in four ways: against a simple model of the same rules after every step
//! (`checked.rs`), in a world with a virtual clock and a seed (`world.rs`, `simulation.rs`), by random sequences of
//! operations that a correct caller would not send (`sequences.rs`), and in scenarios that a person can follow
//! (`scenarios.rs`).

mod auto;
mod balancing;
mod breaker;
mod budget;
mod checked;
mod crowd;
mod crowds;
mod farm;
mod limits;
mod line;
mod machine;
mod neighbours;
mod overload;
mod pace;
mod programs;
mod random;
mod reactors;
mod scaled;
mod scaling;
mod scenarios;
mod sequences;
mod shares;
mod simulation;
mod world;
