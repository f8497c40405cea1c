//! Memory and processors: compares what the workers may use with what exists.
//!
//! For a running weir the memory of workers is measured: their proportional set size, which counts shared pages once.
//! Otherwise only upper bounds are known, and the report says so.

use std::fs;

use weir_config::{PhpSetting, Pm, Pool};
use weir_manager::memory;

use super::{Notes, case::Case, files::size, php};

/// Checks the machine, then the pools.
pub(super) fn look(case: &Case<'_>, notes: &mut Notes) {
    let manager = case.live().and_then(|live| live.manager);
    let machine = Machine::look(manager);
    killed(case, &machine, notes);
    workers(case, &machine, notes);
    gateway(case, &machine, notes);
    kernel(case, &machine, notes);
    processors(case, &machine, notes);
    tasks(case, &machine, notes);
}

/// The resources of this machine, with our limits.
struct Machine {
    /// The limit of the control group, if that is lower; bytes.
    total: u64,
    /// Bytes.
    swap: u64,
    cores: usize,
    /// vm.overcommit_memory
    overcommit: Option<u32>,
    /// The effective policy: `always`, `madvise`, `never`.
    huge_pages: Option<String>,
    /// The control groups' limit of processes and threads.
    tasks: Option<u64>,
    /// Processes that the kernel has killed because the control group had no memory left.
    oom_kills: u64,
}

impl Machine {
    /// With the limits of the running weir, which are other ones than those of a shell; `manager`: its process. Otherwise ours.
    fn look(manager: Option<u32>) -> Self {
        let limits = memory::Limits::of(manager);
        let usable = std::thread::available_parallelism().map_or(1, usize::from);
        let usable = match manager {
            Some(pid) => weir_sys::cpu::allowed(pid).unwrap_or(usable),
            None => usable,
        };
        let quota = limits
            .processors
            .map(|share| share.div_ceil(1_000).max(1) as usize);
        let meminfo = read("/proc/meminfo");
        let policy = read("/sys/kernel/mm/transparent_hugepage/enabled");
        let policy = policy
            .split('[')
            .nth(1)
            .and_then(|rest| rest.split(']').next());
        Self {
            total: limits.memory,
            swap: memory::field(&meminfo, "SwapTotal:").unwrap_or(0),
            cores: quota.map_or(usable, |quota| quota.min(usable)),
            overcommit: read("/proc/sys/vm/overcommit_memory").trim().parse().ok(),
            huge_pages: policy.map(str::to_owned),
            tasks: limits.tasks,
            oom_kills: limits.oom_kills,
        }
    }
}

/// Processes that were killed for lack of memory: then the estimates below were too low.
fn killed(case: &Case<'_>, machine: &Machine, notes: &mut Notes) {
    let told = case
        .live()
        .and_then(|live| live.status["oom_kills"].as_u64());
    let kills = told.unwrap_or(0).max(machine.oom_kills);
    if case.live().is_some() && kills > 0 {
        notes.warn(
            format!(
                "the kernel has killed {kills} {} in weir's control group because memory ran out (it has {})",
                if kills == 1 { "process" } else { "processes" },
                size(machine.total)
            ),
            "each kill ends a request with 502",
            "a lower max_children or memory_limit, max_memory, or more memory (MemoryMax= of the unit, the container's limit)",
        );
    }
}

/// All workers together. `pm = "auto"` starts only as many as fit into memory, so such a pool has its own line.
fn workers(case: &Case<'_>, machine: &Machine, notes: &mut Notes) {
    let (mut taken, mut allowed) = (Vec::new(), Vec::new());
    let mut unknown = false;
    for (index, pool) in case.config.pools.iter().enumerate() {
        let Some(workers) = pool.workers() else {
            continue;
        };
        opcache_enough(case, index, pool, notes);
        let measured = measured(case, pool);
        let limit = bound(case, index, pool);
        if matches!(workers.pm, Pm::Auto { .. }) {
            automatic(case, pool, (measured, limit), machine, notes);
            continue;
        }
        match (measured, limit) {
            (Some(each), _) => taken.push(Share::of(pool, each)),
            (None, Some(limit)) => allowed.push(Share::of(pool, limit)),
            (None, None) => unknown = true,
        }
    }
    if unknown || !allowed.is_empty() {
        notes.unseen(
            "the memory that workers really use",
            "run `weir doctor` while weir is running, as root or as the user who started it",
        );
    }
    if !taken.is_empty() {
        let rest = unknown || !allowed.is_empty();
        together(case, &taken, rest, machine, notes);
    }
    if !allowed.is_empty() {
        bounded(&allowed, machine, notes);
    }
}

/// What a pool's workers use when all of them run.
struct Share<'c> {
    pool: &'c Pool,
    workers: u64,
    /// Memory of one worker, bytes.
    each: u64,
}

impl<'c> Share<'c> {
    fn of(pool: &'c Pool, each: u64) -> Self {
        let workers = pool.workers().map_or(0, |workers| workers.max_children);
        Share {
            pool,
            workers: workers as u64,
            each,
        }
    }

    fn all(&self) -> u64 {
        self.each.saturating_mul(self.workers)
    }

    fn sum(shares: &[Share<'_>]) -> u64 {
        shares
            .iter()
            .fold(0, |sum, share| sum.saturating_add(share.all()))
    }

    /// How many workers fit if all pools are reduced in the same proportion.
    fn mend(shares: &[Share<'_>], room: u64) -> String {
        let sum = u128::from(Share::sum(shares).max(1));
        let fit = |share: &Share<'_>| {
            let fit = u128::from(share.workers) * u128::from(room) / sum;
            format!("[pool.{}] max_children = {}", share.pool.name, fit.max(1))
        };
        let fits: Vec<String> = shares.iter().map(fit).collect();
        format!("{}; or pm = \"auto\"", fits.join(", "))
    }
}

/// A pool that measures its workers' memory itself. `measured` and `limit`: memory of a worker, bytes.
fn automatic(
    case: &Case<'_>,
    pool: &Pool,
    (measured, limit): (Option<u64>, Option<u64>),
    machine: &Machine,
    notes: &mut Notes,
) {
    let name = &pool.name;
    let fit = |each: u64| machine.total / each.max(1);
    let known = match (measured, limit) {
        (Some(each), _) => {
            let run = running(case, pool).len();
            format!(
                "one worker uses {} (measured; {run} are running), so {} is enough for about {}",
                size(each),
                size(machine.total),
                fit(each)
            )
        }
        (None, Some(limit)) => format!(
            "a worker that uses all of its memory_limit takes {}, so {} is enough for at least {}",
            size(limit),
            size(machine.total),
            fit(limit)
        ),
        (None, None) => "the memory of a worker is known once it runs".to_owned(),
    };
    notes.ok(format!(
        "[pool.{name}] pm = \"auto\" starts no more workers than fit in memory; {known}"
    ));
}

/// Running pools: what all of their workers would use.
fn together(
    case: &Case<'_>,
    shares: &[Share<'_>],
    rest: bool,
    machine: &Machine,
    notes: &mut Notes,
) {
    let part = |share: &Share<'_>| {
        let run = running(case, share.pool).len();
        let (name, workers, each) = (&share.pool.name, share.workers, size(share.each));
        format!("[pool.{name}] {workers} × {each} (measured; {run} of them run)")
    };
    let parts: Vec<String> = shares.iter().map(part).collect();
    let sum = Share::sum(shares);
    let but = match rest {
        true => "; pools that were not measured are not included",
        false => "",
    };
    let what = format!(
        "all workers together use {} of {}: {}{but}",
        size(sum),
        size(machine.total),
        parts.join(" + ")
    );
    let room = machine.total / 5 * 4;
    match sum <= room {
        true => notes.ok(what),
        false => notes.warn(
            what,
            "when all workers are busy, the kernel kills processes, the largest first",
            Share::mend(shares, room),
        ),
    }
}

/// Without measurements: what scripts are allowed to use.
fn bounded(shares: &[Share<'_>], machine: &Machine, notes: &mut Notes) {
    let part = |share: &Share<'_>| {
        let (name, workers, each) = (&share.pool.name, share.workers, size(share.each));
        format!("[pool.{name}] {workers} × memory_limit {each}")
    };
    let parts: Vec<String> = shares.iter().map(part).collect();
    let sum = Share::sum(shares);
    let what = format!(
        "scripts may use {} of {} if all workers use their full memory_limit: {}",
        size(sum),
        size(machine.total),
        parts.join(" + ")
    );
    match sum > machine.total {
        true => notes.note(
            what,
            "this is the worst case. Few scripts come close to it; if many do at once, the kernel kills processes",
            format!("{}, or a lower memory_limit", Share::mend(shares, machine.total)),
        ),
        false => notes.ok(what),
    }
}

/// Memory of one worker of a running pool, bytes.
fn measured(case: &Case<'_>, pool: &Pool) -> Option<u64> {
    memory::cost(running(case, pool).into_iter())
}

fn running(case: &Case<'_>, pool: &Pool) -> Vec<u32> {
    case.live()
        .map_or(Vec::new(), |live| live.workers(&pool.name))
}

/// The maximum memory of a script of the pool, bytes.
fn bound(case: &Case<'_>, index: usize, pool: &Pool) -> Option<u64> {
    let workers = pool.workers()?;
    let limit = case
        .php_setting(index, "memory_limit")
        .as_deref()
        .and_then(php::size);
    match (limit, workers.max_memory) {
        (limit, 0) => limit,
        (limit, most) => Some(limit.map_or(most, |limit| limit.min(most))),
    }
}

fn opcache_enough(case: &Case<'_>, index: usize, pool: &Pool, notes: &mut Notes) {
    if pool.php().is_none()
        || case
            .php
            .get(index)
            .is_none_or(|php| !matches!(php, Some(Ok(_))))
    {
        return;
    }
    let settings = pool.php().map_or(&[][..], |php| &php.settings);
    match opcache(settings, case.php_itself(index, "opcache.enable")) {
        None => notes.ok(format!(
            "[pool.{}] scripts are compiled once (OPcache)",
            pool.name
        )),
        Some((what, fix)) => notes.warn(
            format!("[pool.{}] OPcache is {what}", pool.name),
            "every request compiles its scripts again, which needs several times more processor time",
            fix,
        ),
    }
}

/// What keeps OPcache from working, and what helps there; `None`: it works. `by_php`: the value in PHP's own configuration;
/// `None`: PHP has no such setting.
fn opcache(settings: &[PhpSetting], by_php: Option<&str>) -> Option<(String, String)> {
    let is_on = |value: &str| {
        let value = value.trim().to_ascii_lowercase();
        !matches!(value.as_str(), "" | "0" | "off" | "no" | "false" | "none")
    };
    // If OPcache is not installed, no setting of the pool helps.
    let Some(by_php) = by_php else {
        let fix = "install it (Debian: php-opcache), or load it: zend_extension=opcache in php.ini";
        return Some(("not installed".to_owned(), fix.to_owned()));
    };
    let mut own = settings.iter().rev();
    match own.find(|setting| setting.name == "opcache.enable") {
        Some(own) if !is_on(&own.value) => {
            let key = match (own.admin, own.flag) {
                (true, true) => "php_admin_flag",
                (true, false) => "php_admin_value",
                (false, true) => "php_flag",
                (false, false) => "php_value",
            };
            Some((
                format!("off: {key} has opcache.enable = {:?}", own.value),
                format!("remove opcache.enable from {key}, or set it to \"on\" there"),
            ))
        }
        None if !is_on(by_php) => Some((
            "off in php.ini".to_owned(),
            "opcache.enable=1 there, or php_admin_flag = { \"opcache.enable\" = \"on\" }"
                .to_owned(),
        )),
        Some(_) | None => None,
    }
}

/// What the gateway may keep in memory.
fn gateway(case: &Case<'_>, machine: &Machine, notes: &mut Notes) {
    let waiting: u64 = case
        .config
        .pools
        .iter()
        .map(|pool| (pool.queue.max_queue + pool.queue.maxconn) as u64)
        .sum();
    let body = case
        .scopes()
        .iter()
        .map(|scope| scope.settings.body_memory as u64)
        .max();
    let most = waiting.saturating_mul(body.unwrap_or(0));
    if most == 0 {
        return;
    }
    let what = format!(
        "{waiting} waiting or running requests keep at most {} of their bodies in memory (body_memory = {})",
        size(most),
        size(body.unwrap_or(0))
    );
    match most > machine.total / 4 {
        true => notes.warn(
            what,
            format!("that is more than a quarter of {}", size(machine.total)),
            "lower body_memory or max_queue",
        ),
        false => notes.ok(what),
    }
}

/// The kernel's memory settings.
fn kernel(case: &Case<'_>, machine: &Machine, notes: &mut Notes) {
    if machine.swap == 0 {
        notes.note(
            "this machine has no swap",
            "when memory runs out, the kernel kills processes at once, without a warning phase",
            "max_memory of pools and pm = \"auto\" limit weir's workers; some swap gives you time to notice",
        );
    }
    if machine.overcommit == Some(2) {
        notes.warn(
            "vm.overcommit_memory = 2",
            "the kernel counts all memory of the PHP master again for each worker, so new workers can fail to start although memory is free",
            "sysctl -w vm.overcommit_memory=0",
        );
    }
    let own_php = case.php_pools().next().is_some();
    if machine.huge_pages.as_deref() == Some("always") && own_php {
        notes.note(
            "transparent huge pages are on for all programs (always)",
            "the kernel may give a worker 2 MiB where it needs only a few KiB, so workers can use more memory than their scripts need",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        );
    }
}

/// Workers compared with processors.
fn processors(case: &Case<'_>, machine: &Machine, notes: &mut Notes) {
    let cores = machine.cores;
    for pool in &case.config.pools {
        let Some(workers) = pool.workers() else {
            continue;
        };
        let fixed = !matches!(workers.pm, Pm::Auto { .. });
        let most = workers.max_children;
        if fixed && most > cores * MANY {
            notes.note(
                format!("[pool.{}] max_children = {most} on {cores} processors", pool.name),
                "this is right for scripts that wait for databases and other services. Scripts that mostly compute \
                 all become slower when so many run at once",
                "pm = \"auto\" finds a good number; or measure with weir bench",
            );
        } else if fixed && most < cores {
            notes.note(
                format!(
                    "[pool.{}] max_children = {most} on {cores} processors",
                    pool.name
                ),
                "the pool can never use all processors",
                format!("max_children = {}, or pm = \"auto\"", cores * 2),
            );
        }
    }
    let threads = case.config.server.threads;
    if threads > cores {
        notes.warn(
            format!("[server] threads = {threads} on {cores} processors"),
            "more threads than processors only compete with each other and with the workers",
            "threads = 0",
        );
    }
}

/// Processes and threads compared with the control group's limit.
fn tasks(case: &Case<'_>, machine: &Machine, notes: &mut Notes) {
    let children = case.config.pools.iter().filter_map(|pool| pool.workers());
    let children: u64 = children.map(|workers| workers.max_children as u64).sum();
    // Each PHP worker has a second thread; manager, gateway, masters and their threads are added.
    let needed = children * 2 + 100;
    if let Some(most) = machine.tasks.filter(|most| *most < needed) {
        notes.warn(
            format!("{needed} processes and threads may be needed, but the control group allows only {most} (pids.max)"),
            "weir cannot start workers beyond that",
            format!("TasksMax={needed} in the systemd unit, or --pids-limit of the container"),
        );
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// This many workers per processor are reasonable only for scripts that wait most of the time.
const MANY: usize = 16;

#[cfg(test)]
mod tests {
    use super::super::{
        live::{Found, Live},
        tests::{said, with_case, with_config},
    };
    use super::*;

    const WELL: Machine = Machine {
        total: 4 << 30,
        swap: 1 << 30,
        cores: 4,
        overcommit: Some(0),
        huge_pages: None,
        tasks: None,
        oom_kills: 0,
    };

    fn looked(
        pool: &str,
        machine: &Machine,
        look: fn(&Case<'_>, &Machine, &mut Notes),
    ) -> Vec<String> {
        let text = format!(
            "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"app\"\n[pool.app]\n{pool}\n"
        );
        with_config(&text, |case| {
            let mut notes = Notes::default();
            look(case, machine, &mut notes);
            let bad = said(&notes)
                .into_iter()
                .filter(|text| !text.starts_with("ok: "));
            bad.collect()
        })
    }

    const COMMAND: &str = "runtime = \"command\"\ncommand = [\"sh\"]\nmax_children = 8\n";

    #[test]
    fn the_advice_for_opcache_names_the_setting_that_counts() {
        let setting = |key: (bool, bool), value: &str| PhpSetting {
            name: "opcache.enable".into(),
            value: value.into(),
            admin: key.0,
            flag: key.1,
        };
        let off = setting((true, true), "off");
        let fix = |settings: &[PhpSetting], by_php| opcache(settings, by_php).map(|(_, fix)| fix);
        assert_eq!(fix(&[], Some("On")), None);
        assert!(
            fix(&[], Some("Off"))
                .unwrap()
                .contains("php_admin_flag = {")
        );
        // With the proposed value there is no proposal any more.
        assert_eq!(fix(&[setting((true, true), "on")], Some("Off")), None);
        // The flag has an effect even if a value is given, too.
        let value = setting((true, false), "1");
        let both = fix(&[value, off], Some("On")).unwrap();
        assert!(
            both.starts_with("remove opcache.enable from php_admin_flag"),
            "{both}"
        );
        assert!(
            fix(&[setting((true, true), "on")], None)
                .unwrap()
                .contains("install it")
        );
    }

    #[test]
    fn kills_of_the_kernel_are_told_while_weir_runs() {
        let text = format!(
            "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"app\"\n[pool.app]\n{COMMAND}\n"
        );
        with_case(&text, |case| {
            let look = |case: &Case<'_>, oom_kills: u64| {
                let mut notes = Notes::default();
                killed(case, &Machine { oom_kills, ..WELL }, &mut notes);
                said(&notes)
            };
            assert_eq!(look(case, 9), [""; 0], "these may be those of a shell");
            let live = Live::of(serde_json::json!({ "oom_kills": 1 }));
            case.found = Found::Runs(Box::new(live));
            assert!(look(case, 9)[0].starts_with("warn: the kernel has killed 9 processes"));
            assert!(look(case, 0)[0].contains("killed 1 process in weir's control group"));
        });
    }

    #[test]
    fn what_scripts_are_allowed_is_held_against_the_machine() {
        let php = "runtime = \"php\"\npm = \"static\"\nmax_children = 64\nphp_admin_value = { memory_limit = \"128M\" }\n";
        let bounds = |pool: &str| {
            let found = looked(pool, &WELL, workers).into_iter();
            let found: Vec<String> = found.filter(|text| text.contains("scripts may")).collect();
            found
        };
        let found = bounds(php);
        assert!(
            found[0].starts_with("note: ")
                && found[0].contains("8.0 GiB of 4.0 GiB")
                && found[0].contains("[pool.app] 64 × memory_limit 128 MiB"),
            "{found:?}"
        );
        assert!(found[0].contains("max_children = 32"), "{found:?}");
        assert_eq!(bounds(&php.replace("128M", "16M")), [""; 0]);
        assert_eq!(bounds(&php.replace("static", "auto")), [""; 0]);
    }

    #[test]
    fn pools_that_fit_alone_and_not_together_are_told_with_a_sum_that_adds_up() {
        let pool = |name: &str| {
            format!(
                "[pool.{name}]\nruntime = \"php\"\npm = \"static\"\nmax_children = 24\n\
                 php_admin_value = {{ memory_limit = \"128M\" }}\n"
            )
        };
        let text = format!(
            "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"one\"\n{}{}",
            pool("one"),
            pool("two")
        );
        let found = with_config(&text, |case| {
            let mut notes = Notes::default();
            workers(case, &WELL, &mut notes);
            said(&notes)
        });
        let told = found.iter().find(|text| text.contains("scripts may use"));
        let told = told.expect("a bound");
        assert!(
            told.starts_with("note: ") && told.contains("6.0 GiB of 4.0 GiB"),
            "{told}"
        );
        assert!(
            told.contains("[pool.one] 24 × memory_limit 128 MiB + [pool.two] 24"),
            "{told}"
        );
        assert!(
            told.contains("[pool.one] max_children = 16, [pool.two] max_children = 16"),
            "{told}"
        );
    }

    #[test]
    fn workers_that_are_counted_by_memory_are_not_multiplied_by_their_limit() {
        let php = "runtime = \"php\"\npm = \"auto\"\nmax_children = 2000\nphp_admin_value = { memory_limit = \"128M\" }\n";
        let text = format!(
            "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"app\"\n[pool.app]\n{php}\n"
        );
        let found = with_config(&text, |case| {
            let mut notes = Notes::default();
            workers(case, &WELL, &mut notes);
            said(&notes)
        });
        assert!(!found.iter().any(|text| text.contains("250")), "{found:?}");
        let auto = found.iter().find(|text| text.contains("pm = \"auto\""));
        assert!(
            auto.is_some_and(
                |text| text.starts_with("ok: ") && text.contains("enough for at least 32")
            ),
            "{found:?}"
        );
    }

    #[test]
    fn what_waits_in_memory_is_held_against_the_machine() {
        assert_eq!(looked(COMMAND, &WELL, gateway), [""; 0]);
        let found = looked(
            &format!("{COMMAND}queue.max_queue = 100000"),
            &WELL,
            gateway,
        );
        assert!(found[0].starts_with("warn: "), "{found:?}");
    }

    #[test]
    fn the_kernel_s_ways_with_memory_are_told() {
        assert_eq!(looked(COMMAND, &WELL, kernel), [""; 0]);
        let machine = Machine {
            swap: 0,
            overcommit: Some(2),
            huge_pages: Some("always".into()),
            ..WELL
        };
        let found = looked("runtime = \"php\"", &machine, kernel);
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn workers_and_threads_are_held_against_processors_and_tasks() {
        assert_eq!(looked(COMMAND, &WELL, processors), [""; 0]);
        let many = COMMAND.replace("= 8", "= 100");
        assert!(looked(&many, &WELL, processors)[0].starts_with("note: "));
        let few = COMMAND.replace("= 8", "= 2");
        assert!(looked(&few, &WELL, processors)[0].contains("never use all"));
        let machine = Machine {
            tasks: Some(100),
            ..WELL
        };
        assert!(looked(COMMAND, &machine, tasks)[0].contains("TasksMax=116"));
        assert_eq!(looked(COMMAND, &WELL, tasks), [""; 0]);
    }
}
