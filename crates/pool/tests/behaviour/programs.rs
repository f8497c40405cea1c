//! A week of programs beside the pools, with a virtual clock: somebody sets the machine's clock, summer time begins and ends, weir is
//! reloaded, upgraded and killed. No time of a schedule is lost, none is taken twice, and no two processes run where one may.
//!
//! The world is asked what it expects in another way than the timetable computes it: for each minute that the clock shows, it writes down
//! the times that have come, and each run must strike off its own.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use weir_pool::{
    Micros, Pace, Program, ProgramOrder, ProgramRules, REACH, SlotState, Starts, Taken, Timetable,
};

use crate::random::Random;

/// Minutes of a day.
const DAY: i64 = 24 * 60;

/// A week.
const WEEK: i64 = 7 * DAY;

/// A schedule of the simulation, in minutes since the beginning.
#[derive(Debug, Clone, Copy)]
enum When {
    /// Each so many minutes.
    Every(i64),
    /// At these minutes of the day.
    At(&'static [i64]),
}

impl When {
    fn pace(self) -> Pace {
        match self {
            Self::Every(_) => Pace::Intervals,
            Self::At(_) => Pace::TimesOfDay,
        }
    }

    fn has(self, minute: i64) -> bool {
        match self {
            Self::Every(minutes) => minute % minutes == 0,
            Self::At(times) => times.contains(&minute.rem_euclid(DAY)),
        }
    }
}

/// The clock on the wall.
#[derive(Debug, Clone, Copy, Default)]
struct Clock {
    /// How far it was set, seconds.
    set: i64,
    /// Begin and end of summer time, seconds of real time.
    summer: (i64, i64),
}

impl Clock {
    /// The minute without time zone.
    fn minute(&self, real: i64) -> i64 {
        (real + self.set).div_euclid(60)
    }

    /// The minute of a pace.
    fn of(&self, pace: Pace, real: i64) -> i64 {
        let summer = real >= self.summer.0 && real < self.summer.1;
        match pace {
            Pace::TimesOfDay if summer => self.minute(real) + 60,
            Pace::TimesOfDay | Pace::Intervals => self.minute(real),
        }
    }
}

/// A program of the simulation, and what is expected of it.
struct Simulated {
    when: When,
    rules: ProgramRules,
    /// Mean time of a run, seconds.
    runs: u64,
    /// `None`: weir does not run.
    weir: Option<(Program, Timetable)>,
    /// How far the schedule was followed, as weir has noted it.
    noted: i64,
    /// It has noted that a process is still to be started.
    noted_due: bool,
    /// When the running process ends, seconds of real time.
    ends: Option<i64>,
    /// The last minute that the world has seen, and the times that have come and were not taken, each with how often.
    seen: i64,
    open: BTreeMap<i64, u32>,
    /// Minutes into whose middle the clock was set back: their times may be taken or not.
    landed: BTreeSet<i64>,
    counts: Counts,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    expected: u32,
    taken: u32,
    started: u32,
    skipped: u32,
    made_up: u32,
}

fn micros(real: i64) -> Micros {
    Micros::from_secs(real as u64)
}

impl Simulated {
    fn new(when: When, runs: u64, waits: bool, clock: &Clock) -> Self {
        let rules = ProgramRules {
            instances: 1,
            starts: Starts::OnTime { waits },
            max_runtime: Micros::MAX,
            stop_timeout: Micros::from_secs(60),
        };
        let now = clock.of(when.pace(), 0);
        Self {
            when,
            rules,
            runs,
            weir: Some((Program::new(rules, &[]), Timetable::new(now))),
            noted: now,
            noted_due: false,
            ends: None,
            seen: now,
            open: BTreeMap::new(),
            landed: BTreeSet::new(),
            counts: Counts::default(),
        }
    }

    /// The world looks at its clock: which times have come? Each second, whether weir runs or not.
    fn expect(&mut self, now: i64) {
        let held = match self.when.pace() {
            Pace::TimesOfDay => REACH,
            Pace::Intervals => 5,
        };
        let come = match now - self.seen {
            // Nothing new; and what comes again after the clock was set back a little, came before.
            behind if behind <= 0 && behind >= -held => return,
            1..=REACH => self.seen + 1..=now,
            _ => {
                self.landed.insert(now);
                now + 1..=now
            }
        };
        self.seen = now;
        for minute in come.filter(|minute| self.when.has(*minute)) {
            *self.open.entry(minute).or_default() += 1;
            self.counts.expected += 1;
        }
    }

    /// weir looks at its clock, and does what is due.
    fn look(&mut self, now: i64, real: i64, random: &mut Random) {
        let Some((program, table)) = &mut self.weir else {
            return;
        };
        let (when, taken) = (self.when, RefCell::new(Vec::new()));
        let before = table.last();
        let due = table.look(now, when.pace(), |minute| {
            let has = when.has(minute);
            taken.borrow_mut().extend(has.then_some(minute));
            has
        });
        let taken = taken.into_inner();
        if due.is_some() || table.last() < before {
            self.noted = table.last();
        }
        assert_eq!(due.map_or(0, |due| due.times as usize), taken.len());
        for minute in taken {
            match self.open.get_mut(&minute).filter(|left| **left > 0) {
                Some(left) => {
                    *left -= 1;
                    self.counts.taken += 1;
                }
                None => assert!(self.landed.remove(&minute), "{minute} twice, at {now}"),
            }
        }
        if let Some(due) = due {
            self.counts.made_up += due.times - 1;
            if program.due() == Taken::Skipped {
                self.counts.skipped += 1;
                let busy = program.slots(micros(real)).next();
                assert!(
                    matches!(busy, Some(SlotState::Running(_) | SlotState::Elsewhere)),
                    "skipped although it is {busy:?}"
                );
            }
        }
        for order in program.tick(micros(real)) {
            let ProgramOrder::Start(slot) = order else {
                panic!("{order:?}");
            };
            if random.chance(20) {
                program.not_started(slot, micros(real));
                continue;
            }
            assert_eq!(self.ends, None, "two at the same time");
            program.started(slot, micros(real));
            self.ends = Some(real + random.around(self.runs) as i64);
            self.counts.started += 1;
        }
        self.noted_due = program.is_due();
    }

    /// The process may end.
    fn run(&mut self, real: i64, random: &mut Random) {
        if self.ends.is_none_or(|end| end > real) {
            return;
        }
        self.ends = None;
        if let Some((program, _)) = &mut self.weir {
            match program.is_elsewhere(0) {
                true => program.gone(0),
                false => program.exited(0, micros(real), random.chance(900), false),
            }
        }
    }

    fn reload(&mut self, real: i64) {
        if let Some((program, _)) = &mut self.weir {
            program.renew(self.rules, micros(real));
        }
    }

    /// Another weir takes over: the process stays with the old one until it ends.
    fn upgrade(&mut self) {
        if let Some((program, table)) = self.weir.take() {
            let taken: &[usize] = if self.ends.is_some() { &[0] } else { &[] };
            let mut after = Program::new(self.rules, taken);
            if program.is_due() {
                after.due();
            }
            self.weir = Some((after, Timetable::new(table.last())));
        }
    }

    /// weir dies, and its processes with it.
    fn kill(&mut self) {
        (self.weir, self.ends) = (None, None);
    }

    fn start(&mut self, now: i64) {
        // As the manager does it: a time before this was looked at, although nothing was noted.
        let last = match self.noted < now {
            true => self.noted.max(now - REACH),
            false => self.noted,
        };
        let mut program = Program::new(self.rules, &[]);
        if self.noted_due {
            program.due();
        }
        self.weir = Some((program, Timetable::new(last)));
    }
}

/// What happens in a week besides the times.
struct Troubles {
    jumps: bool,
    kills: bool,
}

/// Runs a week; returns what became of each program.
fn week(seed: u64, troubles: &Troubles) -> Vec<Counts> {
    let mut random = Random::new(seed);
    let mut clock = Clock {
        set: 0,
        // Both changes within the week.
        summer: (2 * DAY * 60 + 3_600, 5 * DAY * 60 + 7_200),
    };
    let mut all = [
        Simulated::new(When::Every(10), 40, false, &clock),
        Simulated::new(When::Every(1), 20, false, &clock),
        Simulated::new(When::Every(5), 400, true, &clock),
        Simulated::new(When::Every(60), 900, false, &clock),
        Simulated::new(When::At(&[90, 125, 150, 179, 180]), 60, false, &clock),
        Simulated::new(When::At(&[0, 210, 720, 1_439]), 3_000, false, &clock),
    ];
    let mut down_until = None;
    let (mut quiet_until, mut noticed) = (0, 0);
    for real in 1..WEEK * 60 {
        // What comes while nobody looks, before the clock is set back, nobody can know.
        let may_jump = troubles.jumps && real > quiet_until && down_until.is_none();
        if random.below(9_000) == 0 && may_jump {
            let seconds = match random.below(3) {
                0 => 600,
                1 => 3_600,
                _ => 2 * 3_600,
            };
            let jump = random.below(2 * seconds + 1) as i64 - seconds as i64;
            // About five minutes back is both: a small correction and a jump, as the seconds of the minute are.
            clock.set += if (-420..-240).contains(&jump) {
                -200
            } else {
                jump
            };
            // A person does not set the clock twice in a row, and rules about one jump cannot be about two.
            (quiet_until, noticed) = (real + 3 * 3_600, real + 60);
        }
        if random.below(4_000) == 0 {
            all.iter_mut().for_each(|one| one.reload(real));
        }
        if random.below(8_000) == 0 {
            all.iter_mut().for_each(Simulated::upgrade);
        }
        // Unless the clock was set just now: weir notices it within a minute.
        let may_die = troubles.kills && down_until.is_none() && real > noticed;
        if random.below(8_000) == 0 && may_die {
            all.iter_mut().for_each(Simulated::kill);
            down_until = Some(real + random.below(1_500) as i64);
        }
        let starts = down_until.is_some_and(|until| until <= real);
        for one in &mut all {
            let now = clock.of(one.when.pace(), real);
            one.expect(now);
            if starts {
                one.start(now);
            }
            one.run(real, &mut random);
            // The manager wakes up each minute, and for other reasons.
            if (real + clock.set).rem_euclid(60) == 0 || random.below(50) == 0 || starts {
                one.look(now, real, &mut random);
            }
        }
        if starts {
            down_until = None;
        }
    }
    // What has just come is taken, and a process that could not be started is tried again.
    for one in &mut all {
        if one.weir.is_none() {
            one.start(clock.of(one.when.pace(), WEEK * 60));
        }
        for real in WEEK * 60..WEEK * 60 + 30 {
            let now = clock.of(one.when.pace(), real);
            one.expect(now);
            one.look(now, real, &mut random);
        }
        let lost: Vec<_> = one.open.iter().filter(|(_, left)| **left > 0).collect();
        assert!(lost.is_empty(), "seed {seed}: {:?} lost {lost:?}", one.when);
        assert_eq!(one.counts.expected, one.counts.taken, "seed {seed}");
        if one.when.pace() == Pace::TimesOfDay {
            // However the clock went: each time of each day that it has shown, once.
            let all = (1..=one.seen).filter(|minute| one.when.has(*minute));
            assert_eq!(one.counts.taken as usize, all.count(), "seed {seed}");
        }
    }
    all.map(|one| one.counts).to_vec()
}

fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    match (number("WEIR_POOL_SEED"), number("WEIR_POOL_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, seeds) => 0..seeds.unwrap_or(usual),
    }
}

#[test]
fn a_week_of_a_thousand_times_loses_none_and_takes_none_twice() {
    for seed in seeds(4) {
        let troubles = Troubles {
            jumps: true,
            kills: true,
        };
        let counts = week(seed, &troubles);
        // Every ten minutes: 1,008 times, and some more or less where the clock was set.
        assert!(counts[0].taken > 950, "seed {seed}: {counts:?}");
    }
}

#[test]
fn in_a_week_without_troubles_each_time_has_its_run() {
    let troubles = Troubles {
        jumps: false,
        kills: false,
    };
    for seed in seeds(2) {
        let counts = week(seed, &troubles);
        assert_eq!(counts[0].expected, 1_008);
        // One waits if the last run was longer than ten minutes, which those of 40 s never are.
        assert_eq!(counts[0].started + counts[0].skipped, 1_008, "{counts:?}");
        assert_eq!(
            counts[4].taken, 35,
            "summer time neither doubles nor drops a time of the day"
        );
    }
}

/// A process of the next simulation.
#[derive(Debug, Clone, Copy)]
struct Process {
    slot: usize,
    /// When it ends by itself, and how long it takes to end when it is told to; seconds.
    ends: i64,
    obeys: i64,
    /// Its main process has ended.
    has_left: bool,
    told: bool,
}

/// A program that always runs, with deaths, failed starts, deployments, changes of the number, and processes that leave something
/// behind.
struct Always {
    random: Random,
    rules: ProgramRules,
    program: Program,
    processes: Vec<Process>,
    /// The largest number of instances so far.
    most: usize,
    /// Since when nothing has happened that ends a process.
    calm_since: i64,
}

fn random_rules(random: &mut Random) -> ProgramRules {
    ProgramRules {
        instances: 1 + random.below(4) as usize,
        starts: match random.below(4) {
            0 => Starts::OnFailure,
            _ => Starts::Always,
        },
        max_runtime: match random.below(3) {
            0 => Micros::from_secs(100 + random.below(600)),
            _ => Micros::MAX,
        },
        stop_timeout: Micros::from_secs(1 + random.below(30)),
    }
}

impl Always {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let rules = random_rules(&mut random);
        Self {
            random,
            rules,
            program: Program::new(rules, &[]),
            processes: Vec::new(),
            most: rules.instances,
            calm_since: 0,
        }
    }

    /// A deployment, or other settings.
    fn change(&mut self, real: i64) {
        if self.random.below(900) == 0 {
            (self.rules, self.calm_since) = (random_rules(&mut self.random), real);
            self.program.renew(self.rules, micros(real));
            self.most = self.most.max(self.rules.instances);
        }
        if self.random.below(1_200) == 0 {
            self.calm_since = real;
            self.program.replace(micros(real));
        }
    }

    /// Processes end.
    fn end(&mut self, real: i64) {
        for one in std::mem::take(&mut self.processes) {
            if one.ends > real {
                self.processes.push(one);
                continue;
            }
            if one.has_left {
                self.program.gone(one.slot);
                continue;
            }
            self.calm_since = real;
            let (succeeded, has_left) = (self.random.chance(500), self.random.chance(100));
            (self.program).exited(one.slot, micros(real), succeeded, has_left);
            if has_left {
                let ends = real + self.random.below(60) as i64;
                self.processes.push(Process {
                    has_left,
                    ends,
                    ..one
                });
            }
        }
    }

    fn obey(&mut self, real: i64) {
        for order in self.program.tick(micros(real)) {
            let of = |slot: usize| move |one: &&mut Process| one.slot == slot;
            match order {
                ProgramOrder::Start(slot) => self.start(slot, real),
                ProgramOrder::End { slot, .. } => {
                    let one = self.processes.iter_mut().find(of(slot)).expect("a process");
                    assert!(!one.told && !one.has_left, "{one:?}");
                    (one.told, one.ends) = (true, one.ends.min(real + one.obeys));
                }
                ProgramOrder::Kill(slot) => {
                    let one = self.processes.iter_mut().find(of(slot)).expect("a process");
                    assert!(one.told || one.has_left, "{one:?} was not told");
                    one.ends = real;
                }
            }
        }
    }

    fn start(&mut self, slot: usize, real: i64) {
        let mut others = self.processes.iter();
        assert!(others.all(|one| one.slot != slot), "two in slot {slot}");
        assert!(
            slot < self.rules.instances,
            "slot {slot} of {:?}",
            self.rules
        );
        if self.random.chance(50) {
            self.calm_since = real;
            return self.program.not_started(slot, micros(real));
        }
        self.program.started(slot, micros(real));
        let lives = if self.random.chance(200) { 5 } else { 4_000 };
        self.processes.push(Process {
            slot,
            ends: real + 1 + self.random.around(lives) as i64,
            obeys: self.random.around(20) as i64,
            has_left: false,
            told: false,
        });
    }

    fn check(&self, real: i64) {
        assert!(self.processes.len() <= self.most, "{:?}", self.processes);
        let running = self
            .processes
            .iter()
            .filter(|one| !one.told && !one.has_left);
        let always = self.rules.starts == Starts::Always && self.rules.max_runtime == Micros::MAX;
        // After the longest pause and the longest time to end.
        if real - self.calm_since > 120 && always {
            assert_eq!(
                running.count(),
                self.rules.instances,
                "at {real}: {:?}",
                self.program
            );
        }
    }
}

fn always(seed: u64) {
    let mut world = Always::new(seed);
    for real in 0..20_000 {
        world.change(real);
        world.end(real);
        world.obey(real);
        world.check(real);
    }
    // It stops: each process is told, or killed within its time.
    world.program.stop(micros(20_000));
    for real in 20_000..20_200 {
        world.end(real);
        world.obey(real);
    }
    let program = &world.program;
    assert!(
        program.is_gone() && program.next(micros(30_000)).is_none(),
        "{program:?}"
    );
    assert!(world.processes.is_empty(), "{:?}", world.processes);
}

#[test]
fn programs_that_always_run_are_there_unless_they_cannot_and_never_twice() {
    for seed in seeds(40) {
        always(seed);
    }
}
