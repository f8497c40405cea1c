//! The keys of `[program.NAME]` → [`Program`].

use crate::{
    build::no_syslog,
    document::Named,
    entries::Entries,
    model::{Pool, Program, Workers},
    settings::{self, PoolNames},
    sink::Sink,
};

/// Reads the tables.
pub(crate) fn programs(
    tables: &[Named],
    pools: &[Pool],
    names: &PoolNames<'_>,
    sink: &mut Sink,
) -> Vec<Program> {
    let mut programs = Vec::with_capacity(tables.len());
    for Named { name, entries } in tables {
        let pool = entries.text("pool");
        let pool = pool.and_then(|pool| settings::find(&pool, ("pool", entries), names, sink));
        let of_pool = pool.and_then(|pool| pools.get(pool.0)?.workers());
        let mut program = Program {
            name: name.clone(),
            argv: entries.texts("command").unwrap_or_default(),
            pool,
            process: process(entries, of_pool),
            ..entries.fields(None)
        };
        if program.schedule.is_some() {
            program.instances = 1;
        }
        no_syslog(entries, "output_log", sink);
        report_unused(entries, program.schedule.is_some(), sink);
        programs.push(program);
    }
    programs
}

/// User, environment and limits: the pool's, and on top of them those of the program.
fn process(entries: &Entries, of_pool: Option<&Workers>) -> Workers {
    let Some(pool) = of_pool else {
        return Workers {
            clear_env: entries.get::<Option<bool>>("clear_env").unwrap_or(true),
            ..entries.fields(None)
        };
    };
    let base = Workers {
        user: pool.user.clone(),
        group: pool.group.clone(),
        // The program is not in the pool's chroot.
        chdir: pool.chdir.as_ref().map(|chdir| match &pool.chroot {
            Some(chroot) => chroot.join(chdir.strip_prefix("/").unwrap_or(chdir)),
            None => chdir.clone(),
        }),
        rlimit_files: pool.rlimit_files,
        rlimit_core: pool.rlimit_core,
        rlimit_processes: pool.rlimit_processes,
        priority: pool.priority,
        decorate_output: true,
        ..Workers::default()
    };
    let mut process: Workers = entries.fields(Some(&base));
    if entries.is_written("user") && !entries.is_written("group") {
        // The pool's group is for the pool's user.
        process.group = None;
    }
    let written = entries.get::<Option<bool>>("clear_env");
    process.clear_env = written.unwrap_or(pool.clear_env);
    let own = std::mem::take(&mut process.env);
    process.env = pool.env.clone();
    for (name, value) in own {
        match process.env.iter_mut().find(|(known, _)| *known == name) {
            Some(slot) => slot.1 = value,
            None => process.env.push((name, value)),
        }
    }
    process
}

/// Reports keys that have no effect with or without a schedule.
fn report_unused(entries: &Entries, has_schedule: bool, sink: &mut Sink) {
    // A schedule that is wrong was reported.
    if entries.is_wrong("schedule") {
        return;
    }
    let (keys, message) = match has_schedule {
        true => (
            &["instances", "restart"][..],
            "has no effect with `schedule`: the program is started when its time comes",
        ),
        false => (
            &["timezone", "overlap"][..],
            "has no effect without `schedule`",
        ),
    };
    for key in keys {
        if let Some(entry) = entries.entry(key) {
            sink.warning(entry.key.clone(), format!("`{key}` {message}"), "");
        }
    }
}
