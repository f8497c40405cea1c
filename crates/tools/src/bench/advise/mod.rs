//! `weir bench --advise`: loads a URL in steps, and proposes a pool's limits.
//!
//! `decide` has the calculation and no access to the machine; `observe` reads the state of this machine and of the
//! running weir; `fragment` writes lines of weir.toml. The output consists of such lines; everything else in it is a
//! comment.

mod decide;
mod fragment;
mod observe;

use std::{process::ExitCode, time::Duration};

use serde_json::{Value, json};
use weir_config::{Address, Config, Listener, Pool};
use weir_observe::console;
use weir_sys::signal::Signals;

use self::{
    decide::{Advice, Facts, Step},
    observe::{Observation, Scope},
};
use super::{
    BenchArgs, Stop, begin, load,
    plan::{Load, Plan},
    report::{Summary, span},
    say,
    target::Endpoint,
};

/// What is known about the weir that gets the advice.
pub struct Known<'a> {
    /// Its configuration.
    pub config: &'a Config,
    /// The same as text.
    pub text: &'a str,
    /// Whether another text would be valid, or what is wrong with it.
    pub accepts: &'a dyn Fn(&str) -> Result<(), String>,
    /// Reads the current status from its admin interface, or says why that fails.
    pub status: &'a dyn Fn() -> Result<Value, String>,
    /// Memory of one of these processes, on average, bytes.
    pub cost: fn(&[u32]) -> Option<u64>,
    /// Memory of this machine that workers may still use, bytes.
    pub memory_left: fn() -> u64,
    /// Processors.
    pub cores: usize,
    /// Longest accept queue that the kernel grants.
    pub somaxconn: Option<u32>,
}

/// Runs `weir bench --advise`.
pub fn main(args: &BenchArgs, known: &Known<'_>) -> ExitCode {
    say(advise(args, known))
}

fn advise(args: &BenchArgs, known: &Known<'_>) -> Result<ExitCode, Stop> {
    let named = named_pool(args, known)?;
    let mut plan = Plan::of(&BenchArgs {
        users: Some("1".into()),
        time: Some(args.time.unwrap_or(STEP)),
        ..args.clone()
    })?;
    let signals = begin(&mut plan, args)?;
    for note in &plan.notes {
        console::say(format_args!("note: {note}\n"));
    }
    let before = (known.status)();
    let is_own = plan.places.iter().all(Endpoint::is_own);
    let scope = match is_own {
        true => Scope::choose(before.as_ref().ok(), known.cores as f64),
        false => Scope::Nothing,
    };
    let earlier = before.as_ref().ok().filter(|_| is_own);
    let (steps, first) = measure(&mut plan, &signals, known, scope, |first| {
        see_to_requests(named, earlier, first)
    })?;
    let after = (known.status)();
    let seen = Observation::of(before.as_ref().ok(), first.as_ref(), after.as_ref().ok());
    let pool = pool(named, &seen, known)?;
    let figures = seen.pool(&pool.name);
    let mut doubts = Vec::new();
    if let Err(why) = &after {
        doubts.push(format!(
            "no figures from the running weir ({why}): the time of a worker is estimated from the answers, its memory is not known"
        ));
    }
    if let Scope::Tree(_, others) = scope {
        doubts.push(format!(
            "other programs kept {others:.1} of {} cores busy before the test began: measure on a quiet machine",
            known.cores
        ));
    }
    let worker_memory = figures.as_ref().and_then(|seen| (known.cost)(&seen.pids));
    let taken = figures.as_ref().zip(worker_memory);
    let taken = taken.map_or(0, |(seen, each)| seen.pids.len() as u64 * each);
    let facts = Facts {
        steps,
        cores: known.cores as f64,
        others: match scope {
            Scope::Tree(_, others) => others,
            // This machine itself is too busy for measurements.
            Scope::Nothing if is_own => known.cores as f64,
            Scope::Machine(_) | Scope::Nothing => 0.0,
        },
        service: figures.as_ref().and_then(|seen| seen.service),
        worker_memory,
        memory: is_own.then(|| (known.memory_left)().saturating_add(taken)),
        // A pool of servers may not know its number of workers; it finds it by measuring.
        workers: figures
            .as_ref()
            .and_then(|seen| seen.limit)
            .or_else(|| u32::try_from(pool.queue.maxconn).ok())
            .filter(|workers| *workers > 0),
        target_wait: args.target_wait.as_secs_f64(),
        somaxconn: known.somaxconn,
    };
    let mut advice = decide::decide(&facts).map_err(Stop::unavailable)?;
    advice.doubts.extend(doubts);
    let settings = fragment::settings(&advice, pool, listener(&plan, known));
    if let Err(wrong) = (known.accepts)(&fragment::merge(known.text, &settings)) {
        advice.doubts.push(format!(
            "this conflicts with other values in the configuration: {}",
            wrong.trim().replace('\n', " ")
        ));
    }
    let text = match args.json {
        true => in_json(&plan, &facts, &advice, pool, &settings),
        false => in_toml(&plan, &facts, &advice, pool, &settings),
    };
    super::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the steps. Also returns the status after the first step, if `is_right` accepts it.
fn measure(
    plan: &mut Plan,
    signals: &Signals,
    known: &Known<'_>,
    scope: Scope,
    is_right: impl Fn(Option<&Value>) -> Result<(), Stop>,
) -> Result<(Vec<Step>, Option<Value>), Stop> {
    let length = plan.end.time.unwrap_or(STEP);
    // Workers that are started because of a step are not measured in it.
    plan.warm_up = length / 4;
    plan.end.time = Some(length + plan.warm_up);
    let threads = plan.threads;
    let mut steps = Vec::new();
    let mut first = None;
    while let Some(users) = decide::next(&steps) {
        plan.load = Load::Users(users);
        plan.threads = threads.min(users as usize);
        super::allow_descriptors(plan)?;
        let before = scope.now();
        let run = load(plan, signals)?;
        let cpu = before.zip(scope.now());
        if run.stopped {
            break;
        }
        let summary = Summary::of(plan, &run);
        let whole = (summary.elapsed + plan.warm_up.as_secs_f64()).max(0.001);
        let own = summary.own.cpu / whole;
        let cpu = cpu.map(|(before, after)| scope.between(&before, &after, own));
        let all = (summary.good + summary.refused + summary.failed).max(1);
        let step = Step {
            users,
            rate: summary.rate,
            mean: summary.times.mean,
            p95: summary.times.percentiles[3],
            failed: (summary.refused + summary.failed) as f64 / all as f64,
            cpu,
        };
        console::say(format_args!("{}\n", row(&step)));
        steps.push(step);
        if first.is_none() {
            first = (known.status)().ok();
            is_right(first.as_ref())?;
        }
    }
    Ok((steps, first))
}

fn row(step: &Step) -> String {
    let cpu = step.cpu.map_or("-".to_owned(), |cpu| format!("{cpu:.2}"));
    format!(
        "{:>6} users {:>10.1} a second {:>10} mean {:>10} p95 {:>6} cores {:>5.1} % refused or failed",
        step.users,
        step.rate,
        span(step.mean),
        span(step.p95),
        cpu,
        step.failed * 100.0
    )
}

/// The pool that `--pool` names, if given.
fn named_pool<'a>(args: &BenchArgs, known: &Known<'a>) -> Result<Option<&'a Pool>, Stop> {
    let pools = &known.config.pools;
    let Some(name) = &args.pool else {
        return match pools.len() {
            0 => Err(Stop::usage(
                "the configuration has no pool that advice is possible for",
            )),
            1 => Ok(pools.first()),
            _ => Ok(None),
        };
    };
    match pools.iter().find(|pool| pool.name == *name) {
        Some(pool) => Ok(Some(pool)),
        None => Err(Stop::usage(format!(
            "--pool {name}: the configuration has {}",
            names(pools)
        ))),
    }
}

/// A pool that got none of the requests cannot be advised: the URL is a file, or belongs to another weir.
fn see_to_requests(
    named: Option<&Pool>,
    before: Option<&Value>,
    after: Option<&Value>,
) -> Result<(), Stop> {
    let Some((before, after)) = before.zip(after) else {
        return Ok(());
    };
    let seen = Observation::of(Some(before), None, Some(after));
    let got = match named {
        Some(pool) => seen.pool(&pool.name).map_or(0, |figures| figures.taken),
        None => seen.busiest().map_or(0, |_| 1),
    };
    if got > 0 {
        return Ok(());
    }
    let whom = named.map_or("a pool".to_owned(), |pool| format!("pool {}", pool.name));
    Err(Stop {
        hint: "use a URL that runs a script of this pool, on the weir with this configuration"
            .to_owned(),
        ..Stop::usage(format!(
            "none of the requests reached {whom}: the URL is a file, or belongs to another weir"
        ))
    })
}

/// The named pool, otherwise the one that got the requests.
fn pool<'a>(
    named: Option<&'a Pool>,
    seen: &Observation,
    known: &Known<'a>,
) -> Result<&'a Pool, Stop> {
    if let Some(pool) = named {
        return Ok(pool);
    }
    let pools = &known.config.pools;
    let busiest = seen.busiest();
    let found = busiest.and_then(|name| pools.iter().find(|pool| pool.name == name));
    found.ok_or_else(|| Stop {
        hint: format!("use --pool NAME: {}", names(pools)),
        ..Stop::usage("the pool that answers this URL is not known")
    })
}

fn names(pools: &[Pool]) -> String {
    let names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
    names.join(", ")
}

/// The listener that was loaded.
fn listener<'a>(plan: &Plan, known: &Known<'a>) -> Option<&'a Listener> {
    let place = plan.places.first()?;
    known
        .config
        .listeners
        .iter()
        .find(|listener| match (&listener.address, place) {
            (Address::Tcp(own), Endpoint::Tcp(loaded)) => {
                own.port() == loaded.port()
                    && (own.ip() == loaded.ip() || own.ip().is_unspecified())
            }
            (Address::Unix(own), Endpoint::Unix(loaded)) => own == loaded,
            _ => false,
        })
}

/// The advice as lines of weir.toml, with comments.
fn in_toml(
    plan: &Plan,
    facts: &Facts,
    advice: &Advice,
    pool: &Pool,
    settings: &[fragment::Setting],
) -> String {
    let mut out = format!(
        "# weir bench --advise {}, pool {}\n#\n",
        plan.shown, pool.name
    );
    for step in &facts.steps {
        out.push_str(&format!("# {}\n", row(step)));
    }
    out.push_str("#\n");
    for reason in &advice.reasons {
        out.push_str(&comment("- ", reason));
    }
    for doubt in &advice.doubts {
        out.push_str(&comment("! ", doubt));
    }
    out.push('\n');
    out.push_str(&fragment::toml(settings));
    out
}

/// A sentence on comment lines of limited width.
fn comment(mark: &str, text: &str) -> String {
    let mut out = format!("# {mark}");
    let mut length = 0;
    for word in text.split_whitespace() {
        if length + word.chars().count() > COLUMNS {
            out.push_str("\n#  ");
            length = 0;
        }
        if length > 0 || out.ends_with("#  ") {
            out.push(' ');
        }
        out.push_str(word);
        length += word.chars().count() + 1;
    }
    out.push('\n');
    out
}

fn in_json(
    plan: &Plan,
    facts: &Facts,
    advice: &Advice,
    pool: &Pool,
    settings: &[fragment::Setting],
) -> String {
    let steps = facts.steps.iter().map(|step| {
        json!({
            "users": step.users,
            "rate": step.rate,
            "mean": step.mean,
            "p95": step.p95,
            "failed": step.failed,
            "cores": step.cpu,
        })
    });
    let bound = match advice.bound {
        decide::Bound::Cpu => "cpu",
        decide::Bound::Workers => "workers",
        decide::Bound::Memory => "memory",
        decide::Bound::Elsewhere => "elsewhere",
    };
    let value = json!({
        "weir_bench_advise": 1,
        "url": plan.shown,
        "pool": pool.name,
        "steps": steps.collect::<Vec<_>>(),
        "knee": advice.knee,
        "rate_measured": advice.measured_rate,
        "rate_expected": advice.rate,
        "service_time": advice.service,
        "cpu_per_request": advice.cpu_per_request,
        "worker_memory": facts.worker_memory,
        "memory": facts.memory,
        "bound": bound,
        "max_children": advice.workers,
        "maxconn": advice.workers,
        "max_queue": advice.max_queue,
        "timeout": advice.timeout,
        "backlog": advice.backlog,
        "reasons": advice.reasons,
        "doubts": advice.doubts,
        "toml": fragment::toml(settings),
    });
    format!("{value:#}\n")
}

/// Duration of each step without -t.
const STEP: Duration = Duration::from_secs(3);

/// Width of a comment, characters.
const COLUMNS: usize = 110;
