//! Simulates a fleet of nodes for two minutes, with nodes that die and a crowd of clients, on a virtual clock.
//! docs/fleet.md explains it.
//!
//! ```text
//! cargo run --release -p weir-pool --example fleet -- [SEED [FILE.svg]]
//! ```
//!
//! Prints the run as a table, and draws a picture of it. The same seed gives the same run. `world.rs` is the fleet,
//! `calendar.rs` its clock, `picture.rs` the picture. `tests/fleet.rs` checks the promises with a small fleet.
#![forbid(unsafe_code)]

mod calendar;
mod picture;
mod world;

use std::process::ExitCode;
use std::time::Instant;

use world::{Fleet, Loss, Plan, Rules, Second, Waits};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let seed = match args.next().map(|seed| seed.parse::<u64>()).transpose() {
        Ok(seed) => seed.unwrap_or(1),
        Err(error) => {
            eprintln!("fleet: the seed is a number: {error}");
            return ExitCode::FAILURE;
        }
    };
    let file = args.next();
    let begun = Instant::now();
    let (pool, backlog) = std::thread::scope(|scope| {
        // An unlimited queue on the full number of nodes would fill the memory of this machine.
        let backlog = scope.spawn(|| Fleet::new(plan(Rules::Backlog, 20), seed).run());
        let pool = Fleet::new(plan(Rules::Pool, 200), seed).run();
        (pool, backlog.join())
    });
    let Ok(backlog) = backlog else {
        return ExitCode::FAILURE;
    };
    print("weir: 200 nodes", &pool);
    print("an unlimited queue: 20 nodes", &backlog);
    let requests: u64 = pool.iter().map(|second| second.asked).sum();
    eprintln!(
        "{requests} requests in {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    if let Some(file) = file {
        let svg = picture::draw(
            &plan(Rules::Pool, 200),
            &pool,
            &plan(Rules::Backlog, 20),
            &backlog,
        );
        if let Err(error) = std::fs::write(&file, svg) {
            eprintln!("fleet: {file}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The plan of the two minutes for this number of nodes.
fn plan(rules: Rules, nodes: usize) -> Plan {
    let tenth = nodes / 10;
    let loss = |first, from, until| Loss {
        first,
        nodes: tenth,
        from,
        until,
    };
    Plan {
        rules,
        nodes,
        workers: 16,
        gateways: 4,
        rate: 500.0,
        seconds: 120,
        losses: vec![loss(0, 20, 40), loss(tenth, 75, 95)],
        crowd: (5.0, 65, 85),
    }
}

fn print(title: &str, course: &[Second]) {
    println!("# {title}");
    println!(
        "second  asked  good  capacity  refused  gave up  lost  p50 ms  p99 ms  refused after ms, p99"
    );
    for (number, second) in course.iter().enumerate() {
        let ms = |waits: &Waits, share| match waits.quantile(share) {
            Some(wait) => format!("{:.1}", wait.0 as f64 / 1e3),
            None => "-".to_owned(),
        };
        println!(
            "{number} {} {} {} {} {} {} {} {} {}",
            second.asked,
            second.good,
            second.capacity,
            second.refused,
            second.gave_up,
            second.lost,
            ms(&second.waits, 0.5),
            ms(&second.waits, 0.99),
            ms(&second.refusals, 0.99),
        );
    }
}
