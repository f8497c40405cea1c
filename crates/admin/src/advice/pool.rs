//! Problems of a pool: its workers, its queue, its scripts, its servers.

use std::fmt::Write;

use serde_json::Value;

use super::{
    Cost, Failure, Trouble, count, list, name, number, said, seconds, trouble, weir, work::Work,
};
use crate::text::text;

/// All problems, the worst first.
pub(super) fn troubles(pool: &Value) -> Vec<Trouble> {
    let stalled = stalled(pool);
    let waits = waits(pool).filter(|_| stalled.is_none());
    let mut found: Vec<Trouble> = down(pool).into_iter().chain(stalled).collect();
    found.extend(refused_scripts(pool));
    found.extend(crashes(pool));
    found.extend(could_not_start(pool));
    found.extend(names(pool));
    found.extend(servers(pool));
    found.extend(waits);
    found.extend(scripts(pool));
    found.extend(failures(pool));
    for trouble in &mut found {
        trouble.visitors = number(&pool["last_minute"]["taken"]);
        trouble
            .what
            .insert_str(0, &format!("pool {}: ", name(pool)));
        trouble.pool = pool["name"].as_str().map(str::to_owned);
    }
    found
}

/// No worker can be started, or no server is up.
fn down(pool: &Value) -> Option<Trouble> {
    if pool["state"] != "down" {
        return None;
    }
    if is_servers(pool) {
        return Some(trouble(
            Cost::Site,
            "no server is up; requests are sent to servers that are down, in case they work again"
                .into(),
            "check that the servers are running, that their addresses are right, and the results of their checks",
        ));
    }
    let why = match pool["down_because"].as_str() {
        Some(why) => format!(": {}", text(&why.into())),
        None => String::new(),
    };
    Some(trouble(
        Cost::Site,
        format!("no worker can be started{why}"),
        "every request for it is refused until a worker starts; the error log has the details",
    ))
}

/// All workers have been busy with the same requests for long.
fn stalled(pool: &Value) -> Option<Trouble> {
    let time = pool["running"]["stalled"].as_f64()?;
    if time < stall(pool) {
        return None;
    }
    let busy = number(&pool["workers"]["busy"]);
    let mut what = match is_servers(pool) {
        true => format!(
            "the servers have been busy with the same {} for {}, their maximum: no other request is answered",
            count(busy, "request"),
            said(time)
        ),
        false => format!(
            "{} been busy with the same {} for {}: no other request is answered",
            match busy {
                1 => "its only worker has".to_owned(),
                busy => format!("all {busy} workers have"),
            },
            if busy == 1 { "request" } else { "requests" },
            said(time)
        ),
    };
    let more = [scripts_that_run(pool), Work::of(pool).told()];
    for more in more.into_iter().flatten() {
        let _ = write!(what, "; {more}");
    }
    let demand = demand(pool);
    if !demand.is_empty() {
        let _ = write!(what, "; {}", demand.join("; "));
    }
    Some(trouble(Cost::Site, what, stuck(pool)))
}

/// The advice for scripts that do not end.
fn stuck(pool: &Value) -> String {
    let limit = seconds(&pool["request_terminate_timeout"]);
    if is_servers(pool) {
        let here = match limit {
            0.0 => {
                "set request_terminate_timeout (there or here) to end requests that take too long"
                    .to_owned()
            }
            limit => format!(
                "request_terminate_timeout here ends a request after {}",
                said(limit)
            ),
        };
        return format!(
            "check what the servers are doing (PHP-FPM: status page and slow log) and what their scripts \
             wait for; {here}. More connections do not help"
        );
    }
    let limit = match limit {
        0.0 => "set request_terminate_timeout to end such scripts".to_owned(),
        limit => format!(
            "request_terminate_timeout ends them after {}, a lower one earlier",
            said(limit)
        ),
    };
    let help = Work::of(pool).help("max_children");
    let help = match help.more_workers {
        true => {
            "find what the script waits for (request_slowlog_timeout writes its stack to the slow log). More workers would get \
             stuck, too"
                .to_owned()
        }
        false => help.text,
    };
    format!(
        "{help}; {limit}; `weir pool {} restart` starts new workers now",
        name(pool)
    )
}

/// `18 run /srv/slow.php, the first for 3.2 s (GET /slow.php, process 123)`
fn scripts_that_run(pool: &Value) -> Option<String> {
    let running = &pool["running"];
    let first = list(&running["scripts"]).first()?;
    let oldest = &running["oldest"];
    let who = match number(&oldest["pid"]) {
        0 => String::new(),
        pid => format!(", process {pid}"),
    };
    let runs = match number(&first["count"]) {
        1 => "1 runs".to_owned(),
        count => format!("{count} run"),
    };
    Some(format!(
        "{runs} {}; the oldest has run for {} ({} {}{who})",
        text(&first["script"]),
        said(seconds(&oldest["time"])),
        text(&oldest["method"]),
        text(&oldest["uri"]),
    ))
}

/// Scripts that are refused because they crash their workers.
fn refused_scripts(pool: &Value) -> Vec<Trouble> {
    let scripts = list(&pool["crashing"]).iter();
    scripts
        .map(|script| {
            trouble(Cost::Errors,
                format!(
                    "{} crashes its workers ({} so far) and is refused ({} so far); it is tried again in {} s",
                    text(&script["path"]),
                    text(&script["crashes"]),
                    count(number(&script["refused"]), "request"),
                    text(&script["tried_in"]),
                ),
                weir::help("worker_died"),
            )
        })
        .collect()
}

/// Workers that crash.
fn crashes(pool: &Value) -> Option<Trouble> {
    let crashed = number(&pool["last_minute"]["crashed"]);
    if crashed == 0 {
        return None;
    }
    let mut what = format!("{} crashed in the last minute", count(crashed, "worker"));
    let died = Failure::all(pool).find(|failure| failure.reason() == Some("worker_died"));
    if let Some(died) = died {
        let _ = write!(what, "; {}", died.last());
    }
    Some(trouble(Cost::Errors, what, weir::help("worker_died")))
}

/// Workers that cannot be started.
fn could_not_start(pool: &Value) -> Option<Trouble> {
    let failed = number(&pool["last_minute"]["could_not_start"]);
    (failed > 0 && pool["state"] != "down").then(|| {
        trouble(Cost::Time,
            format!("{} could not be started in the last minute", count(failed, "worker")),
            "see the error log for the reason: often a limit of processes (TasksMax of the unit, ulimit -u), \
             memory, or the program itself",
        )
    })
}

/// Names of servers that cannot be looked up.
fn names(pool: &Value) -> Vec<Trouble> {
    let names = list(&pool["unknown_names"]).iter();
    names
        .map(|name| {
            trouble(
                Cost::Nothing,
                format!(
                    "the name {} has not resolved for {}: {}",
                    text(&name["host"]),
                    said(seconds(&name["seconds"])),
                    text(&name["failure"])
                ),
                "check the name, and that the DNS servers answer (resolver, /etc/resolv.conf); \
                 known addresses are kept",
            )
        })
        .collect()
}

/// Servers that accept requests and answer none.
fn servers(pool: &Value) -> Vec<Trouble> {
    let servers = list(&pool["servers"]);
    let silent = servers.iter().filter(|server| {
        let alone = servers.len() == 1 && seconds(&pool["running"]["stalled"]) >= stall(pool);
        seconds(&server["silent"]) >= stall(pool) && number(&server["busy"]) > 1 && !alone
    });
    silent
        .map(|server| {
            trouble(
                Cost::Errors,
                format!(
                    "server {} has {} and has not answered any for {}",
                    name(server),
                    count(number(&server["busy"]), "request"),
                    said(seconds(&server["silent"]))
                ),
                stuck(pool),
            )
        })
        .collect()
}

/// How many requests wait, and how many are refused for which reasons.
fn demand(pool: &Value) -> Vec<String> {
    let (queue, rates) = (&pool["queue"], &pool["rates"]);
    let mut demand = Vec::new();
    let waiting = number(&queue["waiting"]);
    if waiting > 0 {
        let (oldest, expected) = (
            seconds(&queue["oldest_wait"]),
            seconds(&queue["expected_wait"]),
        );
        let wait = match waiting {
            1 => "1 waits".to_owned(),
            waiting => format!("{waiting} wait"),
        };
        // A predicted wait that is shorter than the present one is useless.
        let expected = match expected > oldest {
            true => format!("; expected wait of a new request {}", said(expected)),
            false => String::new(),
        };
        demand.push(format!(
            "{wait}, the first for {} so far{expected}",
            said(oldest)
        ));
    }
    let refused = seconds(&rates["refused"]);
    if refused >= REFUSED {
        let mut reasons: Vec<(f64, String)> =
            (rates["refused_by"].as_object().into_iter().flatten())
                .map(|(reason, rate)| (seconds(rate), reason.replace('_', " ")))
                .filter(|(rate, _)| *rate >= REFUSED)
                .collect();
        reasons.sort_by(|one, other| other.0.total_cmp(&one.0));
        let reasons: Vec<String> = reasons
            .iter()
            .map(|(rate, reason)| format!("{rate:.1} {reason}"))
            .collect();
        let mut said = format!("{refused:.1} a second are refused");
        if !reasons.is_empty() {
            let _ = write!(said, " ({})", reasons.join(", "));
        }
        demand.push(said);
    }
    if queue["overloaded"] == true {
        demand.push(MORE_THAN_CAN.to_owned());
    }
    demand
}

/// A pool whose requests wait or are refused.
fn waits(pool: &Value) -> Option<Trouble> {
    if pool["state"] == "down" {
        return None;
    }
    let demand = demand(pool);
    if demand.is_empty() {
        return None;
    }
    let (refused, finished) = (&pool["rates"]["refused"], &pool["rates"]["finished"]);
    let cost = match seconds(refused) >= REFUSED {
        true if seconds(finished) == 0.0 && !finished.is_null() => Cost::Site,
        true => Cost::Errors,
        false => Cost::Time,
    };
    let workers = &pool["workers"];
    let (busy, starting) = (number(&workers["busy"]), number(&workers["starting"]));
    let (limit, most) = (number(&workers["limit"]), number(&workers["max"]));
    let running_limit = number(&workers["running_limit"]);
    let crashed = number(&pool["last_minute"]["crashed"]);
    let work = Work::of(pool);
    let mut busy_with = match scripts_that_run(pool) {
        Some(scripts) if busy > 0 => format!(": {scripts}"),
        _ => String::new(),
    };
    if let Some(told) = work.told().filter(|_| busy > 0) {
        let _ = write!(busy_with, "; {told}");
    }
    let oldest = seconds(&pool["running"]["oldest"]["time"]);
    let raise = |key: &str| match oldest >= stall(pool) {
        true => stuck(pool),
        false => work.help(key).text,
    };
    let (cause, help) = if workers["short_of_memory"] == true {
        (
            "memory is short, so no more workers are started".to_owned(),
            "add memory, or let workers use less (memory_limit, max_memory)".to_owned(),
        )
    } else if crashed > 0 && busy < running_limit {
        (
            "workers crash, and replacing them takes time".to_owned(),
            weir::help("worker_died").to_owned(),
        )
    } else if starting > 0 && busy < running_limit {
        (
            match starting {
                1 => "1 worker is starting".to_owned(),
                starting => format!("{starting} workers are starting"),
            },
            "keep more workers ready: raise start_servers, min_spare_servers or max_spawn_rate"
                .to_owned(),
        )
    } else if is_servers(pool) && busy >= running_limit && running_limit > 0 {
        (
            format!(
                "the servers have {}, their maximum{busy_with}",
                count(busy, "request")
            ),
            match oldest >= stall(pool) {
                true => stuck(pool),
                false => {
                    "raise maxconn if the servers have more workers (PHP-FPM: pm.max_children), \
                          add servers, or make the scripts faster"
                        .to_owned()
                }
            },
        )
    } else if busy >= most && most > 0 {
        (
            match most {
                1 => format!("its only worker is busy{busy_with}"),
                most => format!("all {most} workers are busy{busy_with}"),
            },
            raise("max_children"),
        )
    } else if busy >= limit && limit > 0 {
        (
            format!(
                "all {busy} workers are busy, and more workers did not finish more requests{busy_with}"
            ),
            match oldest >= stall(pool) {
                true => stuck(pool),
                false => match work.help("max_children") {
                    help if help.more_workers => {
                        "the limit is the processor, or something that scripts wait for: make the \
                          scripts faster, or use a larger machine"
                            .to_owned()
                    }
                    help => help.text,
                },
            },
        )
    } else if busy >= running_limit && running_limit > 0 {
        (
            format!(
                "{} are running, the maximum at once{busy_with}",
                count(busy, "request")
            ),
            raise("maxconn, or minconn,"),
        )
    } else if number(&workers["idle"]) + busy == 0 {
        (
            "there is no worker".to_owned(),
            "see the error log for what happened to the workers".to_owned(),
        )
    } else {
        (
            format!("{busy} of {} are busy now", count(most, "worker")),
            "see the error log for why requests were refused".to_owned(),
        )
    };
    Some(trouble(
        cost,
        format!("{}; {cause}", demand.join("; ")),
        help,
    ))
}

/// Scripts that answer with a status of 500 or above.
fn scripts(pool: &Value) -> Option<Trouble> {
    let failed: Vec<Failure<'_>> = (Failure::all(pool))
        .filter(|failure| failure.reason().is_none())
        .collect();
    let number_of: u64 = failed.iter().map(Failure::last_minute).sum();
    let done = number(&pool["last_minute"]["finished"]).max(number_of);
    // A few of a thousand requests always fail.
    if !failed.iter().any(Failure::is_now) || number_of * SHARE < done {
        return None;
    }
    let first = failed.first()?;
    let all = number_of >= ENOUGH && number_of * 100 >= done * 95;
    let what = match all {
        true => format!(
            "scripts answered only with errors in the last minute: {} of {} with {}",
            number_of,
            count(done, "request"),
            first.status()
        ),
        false => format!(
            "scripts answered {} of {} in the last minute with {}",
            number_of,
            count(done, "request"),
            first.status()
        ),
    };
    let cost = if all { Cost::Site } else { Cost::Errors };
    Some(trouble(
        cost,
        format!("{what}; {}", first.last()),
        "see PHP's messages in the error log, and the application's own log",
    ))
}

/// Answers of weir itself with a status of 500 or above, for reasons other than the queue.
fn failures(pool: &Value) -> Vec<Trouble> {
    let crashed = number(&pool["last_minute"]["crashed"]) > 0;
    let told = Failure::all(pool).filter(|failure| match failure.reason() {
        None | Some("queue_full" | "queue_timeout" | "crashing") => false,
        Some("worker_died") => failure.is_now() && !crashed,
        // Refusals by the pool's queue have no message.
        Some("no_worker") => failure.is_now() && pool["state"] != "down" && is_servers(pool),
        Some(_) => failure.is_now(),
    });
    told.map(|failure| {
        let reason = failure.reason().unwrap_or_default();
        let how = match reason {
            "truncated" => "were cut in the middle of the answer".to_owned(),
            reason => format!("were answered with {} {reason}", failure.status()),
        };
        let requests = count(failure.last_minute(), "request");
        let how = match failure.last_minute() {
            1 => how.replacen("were", "was", 1).replacen("their", "its", 1),
            _ => how,
        };
        trouble(
            Cost::Errors,
            format!("{requests} {how} in the last minute; {}", failure.last()),
            weir::help(reason),
        )
    })
    .collect()
}

/// After this many seconds without anything new, workers count as stuck.
fn stall(pool: &Value) -> f64 {
    match seconds(&pool["running"]["ready_stalled"]) {
        0.0 => STALLED,
        ready => ready.min(STALLED),
    }
}

fn is_servers(pool: &Value) -> bool {
    pool["runtime"] == "servers"
}

const MORE_THAN_CAN: &str = "more requests come than can be served";

/// The default for [`stall`], if no shorter time makes weir not ready.
const STALLED: f64 = 10.0;

/// Minimum rate of refusals per second that is reported: about one in the last ten seconds.
const REFUSED: f64 = 0.05;

/// Errors of scripts are reported if at least one in this many requests fails.
const SHARE: u64 = 100;

/// Minimum number of errors for the conclusion that everything fails.
const ENOUGH: u64 = 3;

#[cfg(test)]
#[path = "pool/tests.rs"]
mod tests;
