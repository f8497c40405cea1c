//! Names with name servers that a test plays.

use super::*;
use crate::{resolver::FamilyAddresses as Addresses, tests::Counted};
use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Instant,
};
use weir_config::HostSettings;

/// What the name servers say: to be changed while they are asked.
#[derive(Clone)]
struct Servers {
    v4: Arc<Mutex<Half>>,
    v6: Arc<Mutex<Half>>,
    /// Before they answer for IPv4, and for IPv6.
    delays: Arc<Mutex<(Duration, Duration)>>,
    /// Questions for IPv4.
    asked: Arc<AtomicUsize>,
    counted: Arc<Counted>,
}

impl LookUp for Servers {
    fn half<'a>(
        &'a self,
        _: &'a str,
        family: Family,
    ) -> Pin<Box<dyn Future<Output = Half> + Send + 'a>> {
        let delays = *self.delays.lock().unwrap();
        Box::pin(async move {
            let (half, delay) = match family {
                Family::V4 => (&self.v4, delays.0),
                Family::V6 => (&self.v6, delays.1),
            };
            if family == Family::V4 {
                self.asked.fetch_add(1, Relaxed);
            }
            tokio::time::sleep(delay).await;
            half.lock().unwrap().clone()
        })
    }
}

fn found(addresses: &[&str], ttl: u64) -> Half {
    Ok(Addresses {
        addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
        ttl: Duration::from_millis(ttl),
    })
}

fn failed(kind: FailureKind) -> Half {
    Err(Failure::new(kind, "as the test says"))
}

impl Servers {
    fn new(v4: Half) -> Servers {
        Servers {
            v4: Arc::new(Mutex::new(v4)),
            v6: Arc::new(Mutex::new(found(&[], 0))),
            delays: Arc::default(),
            asked: Arc::default(),
            counted: Arc::default(),
        }
    }

    fn say(&self, v4: Half) {
        *self.v4.lock().unwrap() = v4;
    }

    fn names(&self, most: usize) -> Arc<Names> {
        Names::asking(Box::new(self.clone()), most, self.counted.clone())
    }
}

fn settings() -> HostSettings {
    HostSettings {
        resolve_min: Duration::from_millis(1),
        ..HostSettings::usual()
    }
}

fn soon() -> u64 {
    clock::deadline(Duration::from_secs(30))
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(test);
}

async fn addresses(names: &Arc<Names>) -> Vec<String> {
    let found = names.addresses("a.test", &settings(), soon()).await;
    let found = found.expect("addresses");
    found.addresses.iter().map(IpAddr::to_string).collect()
}

/// Waits until it is so.
async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < Duration::from_secs(30), "it is not so");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn many_callers_ask_once_and_then_nobody_waits() {
    run(async {
        let servers = Servers::new(found(&["10.0.0.1"], 60_000));
        servers.delays.lock().unwrap().0 = Duration::from_millis(20);
        let names = servers.names(10);
        let callers: Vec<_> = (0..20)
            .map(|_| {
                let names = names.clone();
                tokio::spawn(async move { addresses(&names).await })
            })
            .collect();
        for caller in callers {
            assert_eq!(caller.await.unwrap(), ["10.0.0.1"]);
        }
        let again = names.addresses("a.test", &settings(), soon()).await;
        assert_eq!(again.unwrap().spent, 0);
        assert_eq!(servers.asked.load(Relaxed), 1);
        assert_eq!(*servers.counted.lookups.lock().unwrap(), (1, 0));
    });
}

#[test]
fn a_name_in_use_is_looked_up_ahead_of_its_end_and_one_that_is_not_is_left() {
    run(async {
        let servers = Servers::new(found(&["10.0.0.1"], 5000));
        let names = servers.names(10);
        assert_eq!(addresses(&names).await, ["10.0.0.1"]);
        servers.say(found(&["10.0.0.2"], 60_000));
        servers.delays.lock().unwrap().0 = Duration::from_millis(50);
        // A name counts as used, too, if only kept connections ask for it.
        let first = "10.0.0.1".parse().unwrap();
        until(async || {
            let found = names.addresses("a.test", &settings(), soon()).await;
            assert_eq!(found.unwrap().spent, 0);
            !names.still("a.test", &settings(), first)
        })
        .await;
        assert_eq!(addresses(&names).await, ["10.0.0.2"]);
        assert_eq!(servers.asked.load(Relaxed), 2);

        let servers = Servers::new(found(&["10.0.0.1"], 600));
        let names = servers.names(10);
        addresses(&names).await;
        until(async || names.lock().entries["a.test"].task.is_none()).await;
        assert_eq!(servers.asked.load(Relaxed), 1);
    });
}

#[test]
fn a_family_that_does_not_answer_is_not_waited_for() {
    run(async {
        let servers = Servers::new(found(&["10.0.0.1"], 60_000));
        *servers.v6.lock().unwrap() = found(&["2001:db8::1"], 60_000);
        servers.delays.lock().unwrap().1 = Duration::from_millis(400);
        let names = servers.names(10);
        assert_eq!(addresses(&names).await, ["10.0.0.1"]);
        until(async || addresses(&names).await == ["10.0.0.1", "2001:db8::1"]).await;
        assert_eq!(servers.asked.load(Relaxed), 1);
    });
}

#[test]
fn the_last_answer_is_used_while_name_servers_fail() {
    run(async {
        let servers = Servers::new(found(&["10.0.0.1"], 1));
        let names = servers.names(10);
        assert_eq!(addresses(&names).await, ["10.0.0.1"]);
        servers.say(failed(FailureKind::Timeout));
        let begun = Instant::now();
        tokio::time::sleep(Duration::from_millis(5)).await;
        for _ in 0..3 {
            assert_eq!(addresses(&names).await, ["10.0.0.1"]);
        }
        // It pauses between failures.
        assert!(servers.asked.load(Relaxed) <= 2 + begun.elapsed().as_secs() as usize);
        assert!(names.still("a.test", &settings(), "10.0.0.1".parse().unwrap()));
        // Not for ever.
        names.lock().entries.get_mut("a.test").unwrap().fresh_until = 0;
        let later = clock::now() + LAST_RESORT;
        let advice = names.lock().entries["a.test"].advice(later);
        assert!(!matches!(advice, Advice::Take(_)));
    });
}

#[test]
fn a_name_that_is_none_is_refused_and_asked_for_again_later() {
    run(async {
        let servers = Servers::new(failed(FailureKind::None));
        *servers.v6.lock().unwrap() = failed(FailureKind::None);
        let names = servers.names(10);
        for _ in 0..3 {
            let fault = names.addresses("a.test", &settings(), soon()).await;
            assert_eq!(fault.unwrap_err().kind, Kind::DnsError);
        }
        assert_eq!(servers.asked.load(Relaxed), 1);
        assert!(!names.still("a.test", &settings(), "10.0.0.1".parse().unwrap()));
        servers.say(found(&["10.0.0.1"], 60_000));
        until(async || names.addresses("a.test", &settings(), soon()).await.is_ok()).await;
    });
}

#[test]
fn who_cannot_wait_is_told_that_nobody_answers() {
    run(async {
        let servers = Servers::new(found(&["10.0.0.1"], 60_000));
        *servers.delays.lock().unwrap() = (Duration::from_millis(300), Duration::from_millis(300));
        let names = servers.names(10);
        let deadline = clock::deadline(Duration::from_millis(20));
        let fault = names.addresses("a.test", &settings(), deadline).await;
        assert_eq!(fault.unwrap_err().kind, Kind::DnsTimeout);
        // The look-up goes on without its callers.
        until(async || names.lock().entries["a.test"].failure.is_none()).await;
        assert_eq!(addresses(&names).await, ["10.0.0.1"]);
        assert_eq!(servers.asked.load(Relaxed), 1);
    });
}

#[test]
fn addresses_need_no_name_servers_and_names_have_a_limit() {
    run(async {
        let servers = Servers::new(found(&["10.0.0.1"], 60_000));
        let names = servers.names(3);
        for host in ["192.0.2.1", "2001:db8::1"] {
            let found = names.addresses(host, &settings(), soon()).await.unwrap();
            assert_eq!(found.addresses.to_vec(), [host.parse::<IpAddr>().unwrap()]);
            assert!(names.still(host, &settings(), found.addresses[0]));
        }
        assert_eq!(servers.asked.load(Relaxed), 0);
        for index in 0..10 {
            let host = format!("{index}.test");
            names.addresses(&host, &settings(), soon()).await.unwrap();
            assert!(names.lock().entries.len() <= 3);
        }
        assert!(names.lock().entries.contains_key("9.test"));
    });
}

#[test]
fn a_name_that_nobody_answers_for_is_looked_up_again_before_its_time() {
    run(async {
        let servers = Servers::new(found(&["10.0.0.1"], 60_000));
        let names = servers.names(10);
        assert_eq!(addresses(&names).await, ["10.0.0.1"]);
        servers.say(found(&["10.0.0.2"], 60_000));
        // It was asked for a moment ago.
        names.suspect("a.test", &settings());
        assert_eq!(addresses(&names).await, ["10.0.0.1"]);
        let mut renewed = None;
        until(async || {
            renewed = names.renewed("a.test", &settings(), soon()).await;
            renewed.is_some()
        })
        .await;
        assert_eq!(
            renewed.unwrap().to_vec(),
            ["10.0.0.2".parse::<IpAddr>().unwrap()]
        );
        assert_eq!(addresses(&names).await, ["10.0.0.2"]);
        assert_eq!(servers.asked.load(Relaxed), 2);
        assert!(
            names
                .renewed("192.0.2.1", &settings(), soon())
                .await
                .is_none()
        );
    });
}

#[test]
fn a_task_that_is_lost_is_replaced() {
    let servers = Servers::new(found(&["10.0.0.1"], 60_000));
    *servers.delays.lock().unwrap() = (Duration::from_secs(60), Duration::from_secs(60));
    let names = servers.names(3);
    run(async {
        let deadline = clock::deadline(Duration::from_millis(5));
        let lost = names.addresses("a.test", &settings(), deadline).await;
        assert!(lost.is_err());
    });
    *servers.delays.lock().unwrap() = (Duration::ZERO, Duration::ZERO);
    run(async {
        assert_eq!(addresses(&names).await, ["10.0.0.1"]);
    });
}
