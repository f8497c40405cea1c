//! TXT records that prove names (DNS-01, RFC 8555 §8.4), made and removed by the operator's command.
//!
//! One command runs at a time, so it needs no lock. After `add` was started, `remove` is always called, also if `add`
//! failed or took too long, because the record may exist.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs::File,
    io,
    os::fd::BorrowedFd,
    path::PathBuf,
    rc::Rc,
    time::{Duration, Instant},
};

use weir_sys::process::{Exit, Spawn, kill};

use crate::{
    children::environment::Variables, generation::plan::find_program, output::tail::OutputTail,
};

/// All records that are wanted, and the command that runs.
#[derive(Debug, Default)]
pub(super) struct Records {
    list: Vec<Record>,
    queue: VecDeque<Job>,
    running: Option<Running>,
}

/// How the command is run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    /// The program, and the arguments before ours. Never empty.
    pub(super) words: Vec<String>,
    pub(super) environment: Variables,
    /// The command is killed after this time.
    pub(super) limit: Duration,
    /// How long after it a record is seen by everybody.
    pub(super) wait: Duration,
}

/// A record of an order.
#[derive(Debug)]
struct Record {
    order: u32,
    /// Number of the challenge.
    number: u32,
    state: RecordState,
    name: String,
    value: String,
    command: Rc<Command>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordState {
    /// Its command waits for others, or runs.
    Adding,
    /// The record is set. At this time every name server should have it.
    Spreading(Instant),
    /// The process for certificates knows.
    Told,
}

/// A command that is to run.
#[derive(Debug)]
struct Job {
    /// The challenge whose record it adds; `None`: it removes one.
    adds: Option<u32>,
    name: String,
    value: String,
    command: Rc<Command>,
}

/// A command that runs.
#[derive(Debug)]
struct Running {
    job: Job,
    pid: u32,
    output: OutputTail,
    until: Instant,
    is_killed: bool,
}

/// The number of a challenge whose record is in place, or cannot be.
pub(super) type Outcome = (u32, Result<(), String>);

impl Records {
    /// A challenge of an order needs a record.
    pub(super) fn add(
        &mut self,
        (order, number): (u32, u32),
        (name, value): (String, String),
        command: &Rc<Command>,
    ) {
        self.list.push(Record {
            order,
            number,
            state: RecordState::Adding,
            name: name.clone(),
            value: value.clone(),
            command: command.clone(),
        });
        self.queue.push_back(Job {
            adds: Some(number),
            name,
            value,
            command: command.clone(),
        });
    }

    /// The records of an order are not needed any more.
    pub(super) fn forget(&mut self, order: u32) {
        let gone: Vec<Record> = self.list.extract_if(.., |one| one.order == order).collect();
        for record in gone {
            let is_it = |job: &Job| job.adds == Some(record.number);
            if let Some(index) = self.queue.iter().position(is_it) {
                // Its command was never started.
                self.queue.remove(index);
                continue;
            }
            self.queue.push_back(Job {
                adds: None,
                name: record.name,
                value: record.value,
                command: record.command,
            });
        }
    }

    /// Whether no command runs or waits.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.running.is_none()
    }

    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let spreading = self.list.iter().filter_map(|one| match one.state {
            RecordState::Spreading(until) => Some(until),
            _ => None,
        });
        let running = match &self.running {
            Some(running) => Some(running.until),
            None => self.queue.front().map(|_| now),
        };
        spreading.chain(running).min()
    }

    /// What the command prints.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.running.as_ref()?.output.descriptor()
    }

    /// Starts the next command, and kills one that takes too long. Returns challenges whose records are in place, or cannot be.
    pub(super) fn tick(&mut self, now: Instant) -> Vec<Outcome> {
        self.read();
        if let Some(running) = &mut self.running
            && now >= running.until
        {
            running.is_killed = true;
            running.until = now + KILL_AGAIN;
            let _ = kill(running.pid);
        }
        let mut outcomes = Vec::new();
        while self.running.is_none()
            && let Some(job) = self.queue.pop_front()
        {
            match start(&job) {
                Ok((pid, output)) => {
                    self.running = Some(Running {
                        until: now + job.command.limit,
                        job,
                        pid,
                        output,
                        is_killed: false,
                    });
                }
                Err(error) => outcomes.extend(self.done(&job, Err(error), now)),
            }
        }
        for record in &mut self.list {
            if matches!(record.state, RecordState::Spreading(until) if until <= now) {
                record.state = RecordState::Told;
                outcomes.push((record.number, Ok(())));
            }
        }
        outcomes
    }

    /// A process has ended, and its number is still its own: kills what the command has started, which may still run.
    pub(super) fn ends(&self, pid: u32) {
        if self.running.as_ref().is_some_and(|one| one.pid == pid) {
            let _ = kill(pid);
        }
    }

    /// A process has ended. `None`: it was another one.
    pub(super) fn exited(&mut self, now: Instant, pid: u32, exit: Exit) -> Option<Vec<Outcome>> {
        self.running.as_ref().filter(|running| running.pid == pid)?;
        self.read();
        let Running {
            job,
            output,
            is_killed,
            ..
        } = self.running.take()?;
        let result = match exit {
            Exit::Code(0) => Ok(()),
            _ => {
                let how = match is_killed {
                    true => format!("it was killed after {:?}", job.command.limit),
                    false => format!("it failed: {exit}"),
                };
                let said = output.text().replace(char::is_control, " ");
                Err(match said.is_empty() {
                    true => format!("{how}, and printed nothing"),
                    false => format!("{how}; it printed: {said}"),
                })
            }
        };
        Some(self.done(&job, result, now).into_iter().collect())
    }

    /// A command is done.
    fn done(&mut self, job: &Job, result: Result<(), String>, now: Instant) -> Option<Outcome> {
        let Job { name, command, .. } = job;
        let what = format!("dns_command {} {} {name}", command.words[0], job.action());
        match &result {
            Ok(()) => log::info!("[tls.acme] {what}: done"),
            Err(cause) => log::error!("[tls.acme] {what}: {cause}"),
        }
        let number = job.adds?;
        let record = self.list.iter_mut().find(|one| one.number == number)?;
        match result {
            Ok(()) => {
                record.state = RecordState::Spreading(now + command.wait);
                None
            }
            Err(cause) => {
                record.state = RecordState::Told;
                Some((number, Err(format!("{what}: {cause}"))))
            }
        }
    }

    /// Reads what the command prints, so that it does not wait.
    fn read(&mut self) {
        if let Some(running) = &mut self.running {
            running.output.read();
        }
    }
}

impl Job {
    fn action(&self) -> &'static str {
        match self.adds {
            Some(_) => "add",
            None => "remove",
        }
    }
}

/// Starts a command. Returns its process and what it prints.
fn start(job: &Job) -> Result<(u32, OutputTail), String> {
    let told = |error: io::Error| format!("it cannot be started: {error}");
    let words = &job.command.words;
    let program = find_program(&words[0], None)?;
    let (output, stdout) = OutputTail::new(MOST_SAID).map_err(told)?;
    let stderr = stdout.try_clone().map_err(told)?;
    let stdin = File::open("/dev/null").map_err(told)?;
    let mut spawn = Spawn::new(program, stdin.into(), stdout, stderr);
    let own = [job.action(), &job.name, &job.value];
    let arguments = words[1..].iter().map(String::as_str).chain(own);
    spawn.arguments = arguments.map(OsString::from).collect();
    spawn.environment = job.command.environment.clone();
    spawn.folder = Some(PathBuf::from("/"));
    spawn.core_size = Some(0);
    let pid = spawn
        .start()
        .map_err(|error| format!("it cannot be started: {error}"))?;
    Ok((pid, output))
}

/// Bytes of a command's output that are kept: the last ones.
const MOST_SAID: usize = 1000;

/// A command that was killed and has not ended is killed again after this time.
const KILL_AGAIN: Duration = Duration::from_secs(1);
