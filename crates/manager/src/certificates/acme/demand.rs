//! Certificates on demand: for host names of handshakes that the configuration does not have, after the application said yes.
//!
//! The gateway reports a name, the only data of a client that this process sees. Public authorities must sign for the
//! name, so it has only letters, digits, `-` and `.`. The process for certificates asks the application. After a yes
//! the certificate is ordered, kept and renewed like all others, but each renewal asks again. Everything has a limit,
//! because anybody may open handshakes with any name: the rates of questions and orders, and the numbers of pending
//! names, answers and certificates.

use std::{
    collections::HashMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use weir_acme::{Issued, Lock, State, Store, ToAcme, is_issued};
use weir_config::{Config, Rate, is_public_name};
use weir_control::DemandReport;
use weir_pool::{EventRate, Micros, TokenBucket};

use super::{
    Orders,
    times::{AGAIN, LOCK_LIFE, LOOK_EVERY, REFUSED_SPAN, SHORT},
    wanted::{Advice, Wanted},
};

/// The state of names that are not in the configuration.
#[derive(Debug)]
pub(super) struct Demand {
    /// `None`: there are no certificates on demand.
    rules: Option<Rules>,
    asking: Vec<Question>,
    answers: HashMap<String, Answer>,
    /// Since when the buckets count.
    begin: Instant,
    /// Questions to the application.
    names: Option<TokenBucket>,
    orders: Option<TokenBucket>,
    outcomes: Vec<Demanded>,
    counts: DemandReport,
    /// Names that came before this weir was in charge.
    early: Vec<String>,
    /// When the folder is looked through.
    forget_at: Instant,
    /// When the log may say again that a limit is reached, and that the application does not answer.
    limit_told: Option<Instant>,
    silence_told: Option<Instant>,
}

/// What the configuration says.
#[derive(Debug, Clone)]
struct Rules {
    ask: String,
    timeout: Duration,
    keep: Duration,
    most: usize,
    store: Store,
}

/// A question to the application.
#[derive(Debug)]
struct Question {
    number: u32,
    name: String,
    /// The process for certificates has it.
    is_sent: bool,
    /// It is given up then.
    until: Instant,
}

/// An answer that is kept.
#[derive(Debug)]
struct Answer {
    is_yes: bool,
    until: Instant,
}

/// The result for a name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Demanded {
    /// The name has a certificate.
    Ready {
        name: String,
        chain: PathBuf,
        key: PathBuf,
    },
    /// The name gets no certificate. The gateway must not ask for it again during this time.
    Refused { name: String, pause: Duration },
    /// The name's certificate is not used any more.
    Gone { name: String },
}

/// What an order on demand has in addition.
#[derive(Debug, Default)]
pub(super) struct OnDemand {
    /// The application has allowed the next order.
    is_allowed: bool,
    /// The gateway has the certificate.
    is_told: bool,
    /// Nothing is to be done for it any more.
    pub(super) is_over: bool,
}

impl Demand {
    pub(super) fn new(now: Instant) -> Demand {
        Demand {
            rules: None,
            asking: Vec::new(),
            answers: HashMap::new(),
            begin: now,
            names: None,
            orders: None,
            outcomes: Vec::new(),
            counts: DemandReport::default(),
            early: Vec::new(),
            forget_at: now,
            limit_told: None,
            silence_told: None,
        }
    }

    fn time(&self, now: Instant) -> Micros {
        now.saturating_duration_since(self.begin).into()
    }

    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let until = self.asking.iter().map(|question| question.until);
        let forget_at = self.rules.as_ref().map(|_| self.forget_at);
        let outcomes = (!self.outcomes.is_empty()).then_some(now);
        until.chain(forget_at).chain(outcomes).min()
    }

    /// The process for certificates has ended: pending questions are sent again.
    pub(super) fn ask_again(&mut self) {
        self.asking
            .iter_mut()
            .for_each(|question| question.is_sent = false);
    }

    fn refuse(&mut self, name: &str, pause: Duration) {
        self.outcomes.push(Demanded::Refused {
            name: name.to_owned(),
            pause,
        });
    }

    /// Keeps an answer, or that there is no certificate.
    fn remember(&mut self, name: &str, is_yes: bool, until: Instant) {
        let now = Instant::now();
        if self.answers.len() >= MOST_ANSWERS {
            self.answers.retain(|_, answer| now < answer.until);
        }
        if self.answers.len() >= MOST_ANSWERS {
            self.answers.clear();
        }
        self.answers
            .insert(name.to_owned(), Answer { is_yes, until });
    }

    /// A name is refused because of a limit.
    fn limited(&mut self, name: &str, limit: &str, now: Instant) {
        self.counts.limited += 1;
        if self.limit_told.is_none_or(|told| now >= told + TELL_EVERY) {
            self.limit_told = Some(now);
            log::warn!(
                "[tls.acme] no certificate on demand for {name}, and perhaps for others: {limit}"
            );
        }
    }
}

impl Orders {
    /// Takes what the configuration says. Certificates on demand of `before` stay, and those in the folder are added.
    pub(super) fn serve_demand(&mut self, config: &Config, before: &mut Vec<Wanted>, now: Instant) {
        let acme = &config.tls.acme;
        let rules = config.demand().map(|demand| {
            let time = self.demand.time(now);
            set_rate(&mut self.demand.names, demand.rate, time);
            set_rate(&mut self.demand.orders, demand.order_rate, time);
            Rules {
                ask: demand.ask.to_owned(),
                timeout: acme.ask_timeout,
                keep: acme.ask_keep,
                most: acme.ask_max,
                store: Store::at(&config.tls.certificates),
            }
        });
        let is_same = match (&self.demand.rules, &rules) {
            (Some(old), Some(new)) => old.ask == new.ask,
            (old, new) => old.is_none() && new.is_none(),
        };
        if !is_same {
            // After a reload, another application may answer differently.
            self.demand.answers.clear();
        }
        self.demand.rules.clone_from(&rules);
        let Some(rules) = rules else {
            for question in std::mem::take(&mut self.demand.asking) {
                self.demand.refuse(&question.name, SHORT);
            }
            return;
        };
        let kept = before.extract_if(.., |one| {
            let name = one.names.first();
            one.demand.is_some() && name.is_some_and(|name| one.chain == rules.store.demanded(name))
        });
        for mut one in kept.take(rules.most) {
            (one.due, one.advice) = (now, Advice::default());
            self.wanted.push(one);
        }
        for name in rules.store.demanded_names(rules.most) {
            let is_known = |one: &Wanted| one.demand.is_some() && one.names[0] == name;
            if is_public_name(&name) && !self.wanted.iter().any(is_known) {
                let mut one = demanded(&rules.store, &name, now);
                // The gateway got it when it was started.
                one.demand = Some(OnDemand {
                    is_told: true,
                    ..OnDemand::default()
                });
                self.wanted.push(one);
            }
        }
        for name in std::mem::take(&mut self.demand.early) {
            self.demand(&name, now);
        }
    }

    /// A gateway wants a certificate for a name.
    pub(crate) fn demand(&mut self, name: &str, now: Instant) {
        if self.generation == 0 && self.demand.early.len() < MOST_PENDING {
            return self.demand.early.push(name.to_owned());
        }
        if let Err(pause) = self.consider(name, now) {
            self.demand.refuse(name, pause);
        }
    }

    /// Finds out what to do for a name. The error is a pause.
    fn consider(&mut self, name: &str, now: Instant) -> Result<(), Duration> {
        let Some(rules) = self.demand.rules.clone() else {
            return Err(SHORT);
        };
        if !is_public_name(name) {
            return Err(rules.keep);
        }
        let at = self.clock.now(now);
        let is_it = |one: &Wanted| one.demand.is_some() && one.names[0] == name;
        if let Some(index) = self.wanted.iter().position(is_it) {
            self.wanted[index].is_due(at);
            self.is_there(index, true);
            return Ok(());
        }
        let mut one = demanded(&rules.store, name, now);
        one.is_due(at);
        if one.not_after > at {
            // Another node has got it.
            self.wanted.push(one);
            self.is_there(self.wanted.len() - 1, true);
            return Ok(());
        }
        if self.demand.asking.iter().any(|one| one.name == name) {
            return Ok(());
        }
        let answer = self.demand.answers.get(name);
        let answer = answer.filter(|answer| now < answer.until);
        if let Some(answer) = answer.filter(|answer| !answer.is_yes) {
            return Err(answer.until - now);
        }
        let is_allowed = answer.is_some();
        if let Some(pause) = one.pause(self.served_at, at) {
            return Err(pause);
        }
        let all = self.wanted.iter().filter(|one| one.demand.is_some());
        let pending = all.clone().filter(|one| one.not_after == 0).count();
        let time = self.demand.time(now);
        let limit = match () {
            () if all.count() >= rules.most => "there are already as many as `ask_max` allows",
            () if pending + self.demand.asking.len() >= MOST_PENDING => {
                "too many names are asked for or ordered at the moment"
            }
            () if is_allowed => return self.allow(one, now),
            () if !take(&mut self.demand.names, time) => {
                "there are more new names than `ask_rate` allows"
            }
            () => {
                self.ask_application(name, now);
                return Ok(());
            }
        };
        self.demand.limited(name, limit, now);
        Err(SHORT)
    }

    /// Asks the application about a name.
    fn ask_application(&mut self, name: &str, now: Instant) {
        let number = self.next_order;
        self.next_order = number.wrapping_add(1);
        let timeout = self.demand.rules.as_ref().map(|rules| rules.timeout);
        self.demand.asking.push(Question {
            number,
            name: name.to_owned(),
            is_sent: false,
            // The process for certificates may have to be started.
            until: now + timeout.unwrap_or_default() + LOOK_EVERY / 4,
        });
        self.send_questions(now);
    }

    /// Sends the questions that are not sent yet.
    fn send_questions(&mut self, now: Instant) {
        let is_idle = self.demand.asking.iter().all(|question| question.is_sent);
        if is_idle || !self.runs(now) {
            return;
        }
        let Some(rules) = self.demand.rules.clone() else {
            return;
        };
        for index in 0..self.demand.asking.len() {
            let question = &mut self.demand.asking[index];
            if !std::mem::replace(&mut question.is_sent, true) {
                let message = ToAcme::Ask {
                    number: question.number,
                    url: format!("{}{}", rules.ask, question.name),
                    limit: u64::try_from(rules.timeout.as_millis()).unwrap_or(u64::MAX),
                };
                self.tell(&message);
            }
        }
    }

    /// Does what is due: sends questions to the application, and reads the folder.
    pub(super) fn tick_demand(&mut self, now: Instant) {
        self.send_questions(now);
        let is_over = |question: &mut Question| question.until <= now;
        let late: Vec<Question> = self.demand.asking.extract_if(.., is_over).collect();
        for question in late {
            let cause = "the process for certificates did not answer in time".to_owned();
            self.answer(&question.name, Err(cause), now);
        }
        self.wanted
            .retain(|one| one.demand.as_ref().is_none_or(|demand| !demand.is_over));
        if let Some(rules) = &self.demand.rules
            && now >= self.demand.forget_at
        {
            self.demand.forget_at = now + FORGET_EVERY;
            let age = Duration::from_secs(REFUSED_SPAN.unsigned_abs());
            rules.store.forget_failures(age);
        }
    }

    /// The application has answered a question, or has not.
    pub(super) fn answered(&mut self, number: u32, status: Result<u16, String>, now: Instant) {
        let is_it = |question: &Question| question.number == number;
        let Some(index) = self.demand.asking.iter().position(is_it) else {
            return;
        };
        let question = self.demand.asking.swap_remove(index);
        let answer = match status {
            Ok(200) => Ok(None),
            Ok(status) if status < 500 => Ok(Some(status)),
            Ok(status) => Err(format!("its answer has the status {status}")),
            Err(cause) => Err(cause),
        };
        self.answer(&question.name, answer, now);
    }

    /// `Ok(None)`: yes; `Ok(Some(status))`: no.
    fn answer(&mut self, name: &str, answer: Result<Option<u16>, String>, now: Instant) {
        let Some(rules) = self.demand.rules.clone() else {
            return;
        };
        let counts = &mut self.demand.counts;
        let (is_yes, keep, what) = match answer {
            Ok(None) => {
                counts.allowed += 1;
                counts.error = None;
                (true, rules.keep, String::new())
            }
            Ok(Some(status)) => {
                counts.refused += 1;
                counts.error = None;
                let what = format!("the application refuses it (`ask`, status {status})");
                (false, rules.keep, what)
            }
            Err(cause) => {
                counts.unanswered += 1;
                let what = format!("the application does not answer (`ask`): {cause}");
                counts.error = Some(what.clone());
                let told = &mut self.demand.silence_told;
                if told.is_none_or(|told| now >= told + TELL_EVERY) {
                    *told = Some(now);
                    log::error!("[tls.acme] no certificate on demand for {name}: {what}");
                }
                (false, rules.keep.min(SILENCE), what)
            }
        };
        self.demand.remember(name, is_yes, now + keep);
        let is_it = |one: &Wanted| one.demand.is_some() && one.names[0] == name;
        let Some(index) = self.wanted.iter().position(is_it) else {
            match is_yes {
                true => {
                    let one = demanded(&rules.store, name, now);
                    if let Err(pause) = self.allow(one, now) {
                        self.demand.refuse(name, pause);
                    }
                }
                false => {
                    log::info!("[tls.acme] no certificate on demand for {name}: {what}");
                    self.demand.refuse(name, keep);
                }
            }
            return;
        };
        // A renewal.
        let one = &mut self.wanted[index];
        if is_yes {
            one.due = now;
            if let Some(demand) = &mut one.demand {
                demand.is_allowed = true;
            }
            return;
        }
        let pause = keep.clamp(SHORT, RENEWAL_PAUSE);
        one.due = now + pause;
        let at = self.clock.now(now);
        if one.state.error.as_ref() != Some(&what) {
            log::warn!("[certificate.{name}] is not renewed: {what}");
        }
        one.state = State {
            error: Some(what),
            at: at.max(one.state.at),
            next: at + pause.as_secs() as i64,
            failures: one.state.failures.saturating_add(1),
            ..std::mem::take(&mut one.state)
        };
        one.write_state();
    }

    /// Orders a certificate that the application has allowed. The error is a pause.
    fn allow(&mut self, mut one: Wanted, now: Instant) -> Result<(), Duration> {
        let time = self.demand.time(now);
        if !take(&mut self.demand.orders, time) {
            let limit = "there are more new names than `ask_order_rate` allows";
            self.demand.limited(&one.name, limit, now);
            return Err(SHORT);
        }
        one.demand = Some(OnDemand {
            is_allowed: true,
            ..OnDemand::default()
        });
        self.wanted.push(one);
        Ok(())
    }

    /// Reports to the gateway that a certificate is there. `again`: a handshake has asked for it again.
    pub(super) fn is_there(&mut self, index: usize, again: bool) {
        let at = self.clock.now(Instant::now());
        let one = &mut self.wanted[index];
        if one.not_after <= at {
            return;
        }
        let Some(demand) = &mut one.demand else {
            return;
        };
        // The next order needs another answer.
        demand.is_allowed = false;
        if again || !demand.is_told {
            demand.is_told = true;
            self.demand.outcomes.push(Demanded::Ready {
                name: one.name.clone(),
                chain: one.chain.clone(),
                key: one.key.clone(),
            });
        }
    }

    /// Whether a certificate that is due may be ordered. The application must have allowed a certificate on demand.
    pub(super) fn is_allowed(&mut self, index: usize, now: Instant) -> bool {
        let at = self.clock.now(now);
        let one = &mut self.wanted[index];
        let Some(demand) = &one.demand else {
            return true;
        };
        if one.not_after != 0 && one.not_after <= at {
            self.lapse(index, now);
            return false;
        }
        if demand.is_allowed {
            return true;
        }
        let name = one.name.clone();
        one.due = now + SHORT;
        let asking = &self.demand.asking;
        if asking.len() < MOST_PENDING && asking.iter().all(|question| question.name != name) {
            self.ask_application(&name, now);
        }
        false
    }

    /// A certificate has expired, and was not renewed.
    fn lapse(&mut self, index: usize, now: Instant) {
        let one = &mut self.wanted[index];
        one.due = now + AGAIN;
        let Some(rules) = &self.demand.rules else {
            return;
        };
        // Another node may be about to renew it.
        let lock = Lock::take(&rules.store, &one.name, LOCK_LIFE);
        let is_ours = matches!(&lock, Ok(Some(_)));
        let at = self.clock.now(now);
        one.is_due(at);
        if !is_ours || one.not_after > at {
            return;
        }
        rules.store.forget_demanded(&one.name);
        log::warn!(
            "[certificate.{}] has expired; it was got on demand, and is removed",
            one.name
        );
        self.demand.counts.lapsed += 1;
        let name = one.name.clone();
        if let Some(demand) = &mut one.demand {
            demand.is_over = true;
        }
        self.demand.outcomes.push(Demanded::Gone { name });
    }

    /// A name on demand gets no certificate for this time. Does nothing for others, and for renewals.
    pub(super) fn give_up(&mut self, index: usize, pause: Duration, now: Instant) {
        let one = &mut self.wanted[index];
        let Some(demand) = &mut one.demand else {
            return;
        };
        if one.not_after != 0 || pause <= SHORT {
            return;
        }
        demand.is_over = true;
        let name = one.name.clone();
        self.demand.remember(&name, false, now + pause);
        self.demand.refuse(&name, pause);
    }

    /// An order of a certificate on demand has ended.
    pub(super) fn count_demanded(&mut self, is_done: bool) {
        let counts = &mut self.demand.counts;
        match is_done {
            true => counts.done += 1,
            false => counts.failed += 1,
        }
    }

    /// The results for names since the last call.
    pub(crate) fn demanded(&mut self) -> Vec<Demanded> {
        std::mem::take(&mut self.demand.outcomes)
    }

    /// Nothing is ordered any more: handshakes that wait end.
    pub(super) fn stop_demand(&mut self) {
        self.demand.rules = None;
        let asking = std::mem::take(&mut self.demand.asking).into_iter();
        let names = asking.map(|question| question.name);
        let pending = self
            .wanted
            .iter()
            .filter(|one| one.demand.is_some() && one.not_after == 0);
        let names: Vec<String> = names.chain(pending.map(|one| one.name.clone())).collect();
        names
            .iter()
            .for_each(|name| self.demand.refuse(name, SHORT));
    }

    /// For the admin interface.
    pub(super) fn demand_report(&self) -> Option<DemandReport> {
        let rules = self.demand.rules.as_ref()?;
        let all = self.wanted.iter().filter(|one| one.demand.is_some());
        let kept = all.clone().filter(|one| one.not_after != 0);
        let pending = all.count() - kept.clone().count() + self.demand.asking.len();
        let first_end = kept.clone().map(|one| one.not_after).min();
        Some(DemandReport {
            kept: kept.count() as u64,
            most: rules.most as u64,
            pending: pending as u64,
            first_end: first_end
                .and_then(|end| u64::try_from(end).ok())
                .unwrap_or(0),
            ..self.demand.counts.clone()
        })
    }
}

/// Keeps the bucket's tokens, up to the new limit.
fn set_rate(bucket: &mut Option<TokenBucket>, rate: Rate, now: Micros) {
    let rate = EventRate::new(rate.interval(), u64::from(rate.burst) + 1);
    match bucket {
        Some(bucket) => bucket.set_rate(now, rate),
        None => *bucket = Some(TokenBucket::new(rate)),
    }
}

/// Whether one more may happen now.
fn take(bucket: &mut Option<TokenBucket>, now: Micros) -> bool {
    bucket
        .as_mut()
        .is_some_and(|bucket| bucket.take(now).is_ok())
}

/// A certificate on demand, as it is in the folder.
fn demanded(store: &Store, name: &str, now: Instant) -> Wanted {
    let chain = store.demanded(name);
    let key = chain.with_file_name("key.pem");
    Wanted {
        demand: Some(OnDemand::default()),
        ..Wanted::new(name, vec![name.to_owned()], chain, key, now)
    }
}

/// The certificates on demand in the folder that can be used: their names, chains and keys.
pub(crate) fn in_folder(config: &Config) -> Vec<(String, PathBuf, PathBuf)> {
    if config.demand().is_none() {
        return Vec::new();
    }
    let store = Store::at(&config.tls.certificates);
    let names = store.demanded_names(config.tls.acme.ask_max).into_iter();
    let usable = names.filter_map(|name| {
        let chain = store.demanded(&name);
        let issued = Issued::read(&chain)?;
        let is_usable = is_public_name(&name)
            && is_issued(&issued, std::slice::from_ref(&name))
            && issued.not_after > weir_acme::now();
        let key = chain.with_file_name("key.pem");
        is_usable.then_some((name, chain, key))
    });
    usable.collect()
}

/// Names that are asked for or ordered at once.
const MOST_PENDING: usize = 100;

/// Answers that are kept.
const MOST_ANSWERS: usize = 10_000;

/// If the application does not answer, it is asked again about the same name after this time.
const SILENCE: Duration = Duration::from_secs(10);

/// The longest pause until the application is asked again whether a certificate may be renewed.
const RENEWAL_PAUSE: Duration = Duration::from_secs(3600);

/// How often the folder is looked through for names that have no certificate.
const FORGET_EVERY: Duration = Duration::from_secs(600);

/// How often the log says that a limit is reached, or that the application does not answer.
const TELL_EVERY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_kept_in_a_limited_number() {
        let mut demand = Demand::new(Instant::now());
        let until = Instant::now() + Duration::from_secs(60);
        for number in 0..MOST_ANSWERS * 3 {
            demand.remember(&format!("{number}.example"), false, until);
        }
        assert!(demand.answers.len() <= MOST_ANSWERS);
    }
}
