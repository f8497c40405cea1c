//! Timeouts that conflict: if one always ends before the other, one of them has no effect, or prevents what the other
//! one is for.

use std::time::Duration;

use weir_config::{Pool, Protocol, Runtime};

use super::{Notes, case::Case};

/// Every pool, then listeners, then the end.
pub(super) fn look(case: &Case<'_>, notes: &mut Notes) {
    for (index, pool) in case.config.pools.iter().enumerate() {
        let before = notes.findings.len();
        scripts(case, index, pool, notes);
        if let Runtime::Servers(_) = pool.runtime {
            connecting(pool, notes);
        }
        if notes.findings.len() == before {
            notes.ok(format!("[pool.{}] its timeouts fit together", pool.name));
        }
    }
    deadlines(case, notes);
    stopping(case, notes);
    idle(case, notes);
}

/// Compares deadlines of sites and routes with their pool's limits.
fn deadlines(case: &Case<'_>, notes: &mut Notes) {
    let mut told = Vec::new();
    for scope in case.scopes() {
        let deadline = scope.settings.policy.timeout;
        let Some((id, pool)) = scope
            .settings
            .pool
            .and_then(|id| Some((id, case.pool(id)?)))
        else {
            continue;
        };
        // A route repeats the value of its site.
        if deadline.is_zero() || told.contains(&(deadline, id)) {
            continue;
        }
        told.push((deadline, id));
        let label = format!("{} timeout = {}", scope.label, seconds(deadline));
        let (wait, terminate) = (pool.queue.timeout, pool.request_terminate_timeout);
        let most = wait.saturating_add(terminate);
        if !terminate.is_zero() && deadline >= most {
            notes.note(
                format!(
                    "{label} has no effect: [pool.{}] lets a request wait for at most {} and run for at most {}",
                    pool.name,
                    seconds(wait),
                    seconds(terminate)
                ),
                "the limits of the pool end a request earlier",
                format!("timeout = {}, or remove it", quoted(most / 2)),
            );
        } else if deadline <= wait {
            notes.note(
                format!(
                    "{label} is shorter than the queue timeout = {} of [pool.{}]",
                    seconds(wait),
                    pool.name
                ),
                "its requests never wait that long; one that would have to is refused at once",
                "nothing to do if this is intended",
            );
        } else {
            notes.ok(format!(
                "{label} leaves time to wait ({}) and to run",
                seconds(wait)
            ));
        }
    }
}

/// How long a script may run, for weir and for PHP.
fn scripts(case: &Case<'_>, index: usize, pool: &Pool, notes: &mut Notes) {
    let (name, terminate) = (&pool.name, pool.request_terminate_timeout);
    let limited = !terminate.is_zero();
    if limited && pool.read_timeout < terminate {
        notes.note(
            format!(
                "[pool.{name}] read_timeout = {} is shorter than request_terminate_timeout = {}",
                seconds(pool.read_timeout),
                seconds(terminate)
            ),
            "a script that prints nothing gets 504 at the shorter one",
            format!(
                "read_timeout = {}, if silent scripts need that long",
                quoted(terminate)
            ),
        );
    }
    if let Some(php) = pool.php() {
        let slow = php.slowlog_timeout;
        if limited && !slow.is_zero() && slow >= terminate {
            notes.warn(
                format!(
                    "[pool.{name}] request_slowlog_timeout = {} is not below request_terminate_timeout = {}",
                    seconds(slow),
                    seconds(terminate)
                ),
                "a script is stopped before its stack is written, so the slow log stays empty",
                format!("request_slowlog_timeout = {}", quoted(terminate / 2)),
            );
        }
        if let Some(most) = case.php_setting(index, "max_execution_time") {
            execution(pool, &most, notes);
        }
    }
    let timeout = pool.queue.timeout;
    if timeout >= CLIENTS_GIVE_UP {
        notes.note(
            format!("[pool.{name}.queue] timeout = {}", seconds(timeout)),
            format!(
                "many web servers and balancers in front give up after {} by default, so clients that wait longer have already left",
                seconds(CLIENTS_GIVE_UP)
            ),
            "timeout = \"10s\"",
        );
    }
}

/// PHP's own limit, which counts only CPU time.
fn execution(pool: &Pool, text: &str, notes: &mut Notes) {
    let (name, terminate) = (&pool.name, pool.request_terminate_timeout);
    let Ok(most) = text.trim().parse::<u64>() else {
        return;
    };
    if !terminate.is_zero() && most > terminate.as_secs() {
        notes.note(
            format!(
                "[pool.{name}] PHP's max_execution_time = {most} s is above request_terminate_timeout = {}",
                seconds(terminate)
            ),
            "it counts only processor time and is never reached: scripts end with 504, without a message from PHP",
            format!(
                "php_admin_value = {{ max_execution_time = \"{}\" }}",
                terminate.as_secs().saturating_sub(1).max(1)
            ),
        );
    }
    if terminate.is_zero() && most == 0 {
        notes.warn(
            format!("[pool.{name}] scripts have no time limit: neither request_terminate_timeout nor PHP's max_execution_time is set"),
            "a script that loops or hangs keeps its worker for ever: the client gets 504 after read_timeout, but the script keeps running",
            "request_terminate_timeout = \"60s\"",
        );
    }
}

fn connecting(pool: &Pool, notes: &mut Notes) {
    let (connect, wait) = (pool.connect_timeout, pool.queue.timeout);
    if connect > wait {
        notes.warn(
            format!(
                "[pool.{}] connect_timeout = {} is longer than the queue timeout = {}",
                pool.name,
                seconds(connect),
                seconds(wait)
            ),
            "if a server does not answer, the request's waiting time is over before another server can be tried",
            format!("connect_timeout = {}", quoted((wait / 4).max(Duration::from_millis(100)))),
        );
    }
}

/// Compares the limit of a graceful stop with how long requests may run.
fn stopping(case: &Case<'_>, notes: &mut Notes) {
    let stop = case.config.server.shutdown_timeout;
    let longest = case.config.pools.iter();
    let longest = longest.max_by_key(|pool| pool.request_terminate_timeout);
    let Some(pool) = longest.filter(|pool| pool.request_terminate_timeout > stop) else {
        let mut pools = case.config.pools.iter();
        let all_limited = pools.all(|pool| !pool.request_terminate_timeout.is_zero());
        notes.ok(format!(
            "[server] shutdown_timeout = {}: {}",
            seconds(stop),
            match all_limited {
                true => "no script can run for longer",
                false => "a stop or reload cuts off scripts that run for longer",
            }
        ));
        return;
    };
    let terminate = pool.request_terminate_timeout;
    notes.warn(
        format!(
            "[server] shutdown_timeout = {} is shorter than request_terminate_timeout = {} of [pool.{}]",
            seconds(stop),
            seconds(terminate),
            pool.name
        ),
        "a stop or reload cuts off scripts that run for longer",
        format!("shutdown_timeout = {}", quoted(terminate)),
    );
}

/// Compares kept connections with the load balancer in front.
fn idle(case: &Case<'_>, notes: &mut Notes) {
    for listener in &case.config.listeners {
        let idle = listener.idle_timeout;
        if listener.protocol == Protocol::Http && idle <= BALANCERS {
            notes.note(
                format!("[listen.{}] idle_timeout = {} is not above 60 s", listener.name, seconds(idle)),
                "many load balancers keep idle connections for 60 s. If weir closes one first, a request \
                 that is being sent on it fails",
                "idle_timeout = \"75s\", if a load balancer is in front",
            );
        }
    }
}

/// `1.5 s`, `2 min`
pub(super) fn seconds(duration: Duration) -> String {
    match duration.as_secs_f64() {
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 120.0 && s.fract() == 0.0 => format!("{s:.0} s"),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.0} h", s / 3600.0),
    }
}

/// In weir.toml's notation.
fn quoted(duration: Duration) -> String {
    match duration.subsec_millis() {
        0 => format!("\"{}s\"", duration.as_secs()),
        _ => format!("\"{}ms\"", duration.as_millis()),
    }
}

/// The default of nginx's fastcgi_read_timeout and proxy_read_timeout, and of many load balancers.
const CLIENTS_GIVE_UP: Duration = Duration::from_secs(60);

/// The idle timeout of AWS's load balancers, nginx's upstream and others.
const BALANCERS: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::super::tests::{said, with_config};
    use super::*;

    fn looked(server: &str, pool: &str) -> Vec<String> {
        let text = format!(
            "[server]\n{server}\n[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"app\"\n[pool.app]\n{pool}\n"
        );
        with_config(&text, |case| {
            let mut notes = Notes::default();
            look(case, &mut notes);
            let bad = said(&notes)
                .into_iter()
                .filter(|text| !text.starts_with("ok: "));
            bad.collect()
        })
    }

    const COMMAND: &str = "runtime = \"command\"\ncommand = [\"sh\"]\n";

    #[test]
    fn the_defaults_agree() {
        assert_eq!(looked("", COMMAND), [""; 0]);
    }

    #[test]
    fn a_stop_that_is_shorter_than_scripts_is_told() {
        let pool = format!("{COMMAND}request_terminate_timeout = \"60s\"");
        let found = looked("", &pool);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("warn: ") && found[0].contains("shutdown_timeout = \"60s\""),
            "{found:?}"
        );
        assert_eq!(looked("shutdown_timeout = \"60s\"", &pool), [""; 0]);
    }

    #[test]
    fn that_nothing_limits_scripts_is_not_told_as_a_limit() {
        let told = |pool: &str| {
            let text = format!(
                "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"app\"\n[pool.app]\n{pool}\n"
            );
            with_config(&text, |case| {
                let mut notes = Notes::default();
                stopping(case, &mut notes);
                said(&notes).concat()
            })
        };
        assert!(told(COMMAND).contains("cuts off scripts that run for longer"));
        let limited = format!("{COMMAND}request_terminate_timeout = \"20s\"");
        assert!(told(&limited).contains("no script can run for longer"));
    }

    #[test]
    fn silence_slow_logs_and_php_are_held_against_the_end_of_a_script() {
        let server = "shutdown_timeout = \"2m\"";
        let found = looked(
            server,
            &format!("{COMMAND}request_terminate_timeout = \"90s\""),
        );
        assert!(
            found[0].contains("read_timeout = 60 s is shorter than"),
            "{found:?}"
        );
        let php = "runtime = \"php\"\nrequest_terminate_timeout = \"10s\"\nrequest_slowlog_timeout = \"10s\"\n";
        let found = looked(server, php);
        assert!(
            found
                .iter()
                .any(|f| f.contains("request_slowlog_timeout = \"5s\"")),
            "{found:?}"
        );
        let more = format!("{php}php_admin_value = {{ max_execution_time = \"30\" }}\n");
        let found = looked(server, &more);
        assert!(
            found
                .iter()
                .any(|f| f.contains("max_execution_time = \"9\"")),
            "{found:?}"
        );
        let none = "runtime = \"php\"\nphp_admin_value = { max_execution_time = \"0\" }\n";
        assert!(looked("", none)[0].starts_with("warn: "));
    }

    #[test]
    fn deadlines_are_held_against_waiting_and_running() {
        let looked = |timeout: &str, pool: &str| {
            let text = format!(
                "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"app\"\ntimeout = \"{timeout}\"\n\
                 [[site.a.route]]\npath = \"/x\"\n[pool.app]\n{COMMAND}{pool}\n"
            );
            with_config(&text, |case| {
                let mut notes = Notes::default();
                deadlines(case, &mut notes);
                assert_eq!(notes.findings.len(), 1);
                said(&notes).remove(0)
            })
        };
        assert!(looked("20s", "").starts_with("ok: "));
        assert!(looked("5s", "").contains("is shorter than the queue timeout"));
        assert!(looked("60s", "request_terminate_timeout = \"20s\"").contains("has no effect"));
    }

    #[test]
    fn waiting_connecting_and_idling_are_held_against_their_neighbours() {
        let pool = "runtime = \"servers\"\nservers = [\"127.0.0.1:1\"]\nqueue = { maxconn = 1, timeout = \"2s\" }\n";
        let found = looked("", pool);
        assert!(
            found[0].contains("connect_timeout = \"500ms\""),
            "{found:?}"
        );
        let found = looked("", &format!("{COMMAND}queue.timeout = \"2m\""));
        assert!(
            found[0].starts_with("note: ") && found[0].contains("timeout = 2 min"),
            "{found:?}"
        );
        let text = format!(
            "[listen.a]\naddress = \":1\"\nidle_timeout = \"30s\"\n[site.a]\nroot = \"/\"\npool = \"app\"\n[pool.app]\n{COMMAND}"
        );
        let found = with_config(&text, |case| {
            let mut notes = Notes::default();
            idle(case, &mut notes);
            said(&notes)
        });
        assert!(found[0].contains("idle_timeout = 30 s"), "{found:?}");
    }
}
