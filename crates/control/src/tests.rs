//! Messages are the same after encoding and decoding, and invalid messages are refused.

use super::{wire::MAX_TEXT, *};
use proptest::prelude::*;
use std::{ffi::OsString, os::unix::ffi::OsStringExt, time::Duration};

fn path() -> impl Strategy<Value = PathBuf> {
    prop::collection::vec(any::<u8>(), 0..100).prop_map(|b| OsString::from_vec(b).into())
}

fn jail() -> impl Strategy<Value = Jail> {
    let groups = prop::collection::vec(any::<u32>(), 0..20);
    let identity = (any::<u32>(), any::<u32>(), groups).prop_map(|(uid, gid, groups)| Identity {
        uid,
        gid,
        groups,
    });
    let own_user = any::<Option<u32>>();
    let jail = (
        prop::option::of(identity),
        own_user,
        prop::option::of(path()),
    );
    jail.prop_map(|(identity, own_user, chroot)| Jail {
        identity,
        own_user,
        chroot,
    })
}

fn source() -> impl Strategy<Value = Source> {
    (".*", path(), any::<u64>(), any::<u64>(), any::<u64>()).prop_map(
        |(name, folder, cores, memory, open_files)| Source {
            name,
            folder,
            cores,
            memory,
            open_files,
        },
    )
}

fn exit() -> impl Strategy<Value = Exit> {
    prop_oneof![
        any::<i32>().prop_map(Exit::Code),
        any::<i32>().prop_map(Exit::Signal)
    ]
}

fn limits() -> impl Strategy<Value = (Option<u32>, Option<u32>)> {
    any::<(Option<u32>, Option<u32>)>()
}

fn pool_use() -> impl Strategy<Value = PoolUse> {
    (process_use(), any::<u64>()).prop_map(|(all, worker_memory)| PoolUse { all, worker_memory })
}

fn process_use() -> impl Strategy<Value = ProcessUse> {
    any::<(u64, u64, u64)>().prop_map(|(cpu, memory, files)| ProcessUse { cpu, memory, files })
}

fn addresses() -> impl Strategy<Value = (String, Vec<IpAddr>)> {
    (
        ".*",
        prop::collection::vec(any::<IpAddr>(), 0..MOST_ADDRESSES),
    )
}

fn holding() -> impl Strategy<Value = DrainStatus> {
    (any::<[u32; 2]>(), any::<bool>(), any::<u64>(), ".*").prop_map(
        |([connections, requests], calls, longest, request)| DrainStatus {
            connections,
            requests,
            calls,
            longest,
            request,
        },
    )
}

fn owner() -> impl Strategy<Value = Owner> {
    prop_oneof![
        Just(Owner::Nobody),
        Just(Owner::Barred),
        Just(Owner::Later),
        any::<u32>().prop_map(Owner::Process)
    ]
}

/// A number takes the place of the descriptor.
fn to_gateway() -> impl Strategy<Value = ToGateway<u8>> {
    let numbers = || (any::<u16>(), any::<u32>(), any::<u32>());
    prop_oneof![
        jail().prop_map(ToGateway::Jail),
        (
            source(),
            any::<bool>(),
            (any::<u16>(), any::<bool>()),
            any::<u8>()
        )
            .prop_map(|(source, trace, (most, elastic), text)| {
                ToGateway::Config {
                    source,
                    trace,
                    reactors: Reactors { most, elastic },
                    text,
                }
            }),
        (any::<u16>(), any::<u16>(), any::<u8>()).prop_map(|(listener, reactor, socket)| {
            ToGateway::Listener {
                listener,
                reactor,
                socket,
            }
        }),
        any::<u8>().prop_map(ToGateway::AccessLog),
        any::<u8>().prop_map(ToGateway::EgressLog),
        (any::<u32>(), owner()).prop_map(|(id, owner)| ToGateway::Owner { id, owner }),
        (
            any::<u32>(),
            prop::option::of((any::<u32>(), ".*")),
            any::<bool>()
        )
            .prop_map(|(id, found, later)| ToGateway::Former { id, found, later }),
        any::<u8>().prop_map(ToGateway::ErrorLog),
        (any::<u16>(), any::<u8>()).prop_map(|(pool, file)| ToGateway::PoolLog { pool, file }),
        any::<u8>().prop_map(ToGateway::SpoolDir),
        any::<u8>().prop_map(ToGateway::AdminUnix),
        any::<u8>().prop_map(ToGateway::AdminTcp),
        ".*".prop_map(ToGateway::AdminToken),
        ".*".prop_map(ToGateway::BusPassword),
        (any::<u16>(), any::<u32>(), ".*").prop_map(|(pool, pid, declined)| ToGateway::Zygote {
            pool,
            pid,
            declined
        }),
        (
            any::<u32>(),
            ".*",
            prop::collection::vec(any::<u16>(), 0..4)
        )
            .prop_map(|(template, own, pools)| ToGateway::PhpLoad {
                template,
                own,
                pools
            }),
        any::<bool>().prop_map(|on| ToGateway::Decline { on }),
        (any::<u16>(), limits()).prop_map(|(pool, (max_children, maxconn))| ToGateway::Limits {
            pool,
            max_children,
            maxconn
        }),
        prop::collection::vec((any::<u16>(), pool_use()), 0..4)
            .prop_map(|pools| ToGateway::PoolUse { pools }),
        (process_use(), process_use(), any::<[u64; 6]>()).prop_map(|(manager, gateway, counts)| {
            ToGateway::OwnUse {
                manager,
                gateway,
                counts: ManagerCounts {
                    reloads: counts[0],
                    failed_reloads: counts[1],
                    gateway_restarts: counts[2],
                    gateway_hangs: counts[3],
                    oom_kills: counts[4],
                    reload_waits: counts[5] % 2 == 0,
                },
            }
        }),
        (path(), any::<u8>()).prop_map(|(path, file)| ToGateway::Opened { path, file }),
        (any::<u16>(), any::<u8>())
            .prop_map(|(listener, socket)| ToGateway::EgressListener { listener, socket }),
        any::<u8>().prop_map(ToGateway::EgressFiles),
        any::<u8>().prop_map(ToGateway::CertificateOrders),
        any::<u8>().prop_map(ToGateway::Programs),
        (".*", any::<u32>())
            .prop_map(|(name, pause)| ToGateway::CertificateRefused { name, pause }),
        Just(ToGateway::Start),
        Just(ToGateway::Ping),
        addresses().prop_map(|(name, addresses)| ToGateway::Addresses { name, addresses }),
        (any::<[u32; 2]>(), any::<[u64; 2]>(), holding()).prop_map(
            |([number, gateway], [since, left], holding)| {
                ToGateway::OldGeneration(OldGeneration {
                    number,
                    gateway,
                    since,
                    left,
                    holding,
                })
            }
        ),
        (
            ".*",
            any::<u64>(),
            any::<Option<u64>>(),
            any::<Option<String>>(),
            any::<u32>()
        )
            .prop_map(|(name, lost, ago, failing, waiting)| {
                ToGateway::ManagerLog(Health {
                    name,
                    lost,
                    lost_ago: ago.map(Duration::from_millis),
                    failing,
                    waiting: waiting as usize,
                })
            }),
        (".*", any::<u32>(), ".*", ".*").prop_map(|(pool, pid, function, at)| {
            ToGateway::SlowPlace(SlowPlace {
                pool,
                pid,
                function,
                at,
            })
        }),
        (any::<u64>(), any::<bool>(), ".*").prop_map(|(ago, done, text)| ToGateway::LastReload {
            ago,
            done,
            text
        }),
        (numbers(), any::<u32>(), any::<bool>(), any::<u8>()).prop_map(
            |((pool, worker, pid), start_number, used, connection)| ToGateway::Worker {
                pool,
                worker,
                pid,
                start_number,
                used,
                connection,
            }
        ),
        (numbers(), exit(), any::<bool>()).prop_map(|((pool, worker, pid), exit, killed)| {
            ToGateway::WorkerExited {
                pool,
                worker,
                pid,
                exit,
                killed,
            }
        }),
        (any::<u16>(), ".*").prop_map(|(pool, message)| ToGateway::PoolDown { pool, message }),
        (
            any::<u32>(),
            ".*",
            any::<bool>(),
            prop::collection::vec(any::<u16>(), 0..4)
        )
            .prop_map(
                |(start_number, version, exposed, pools)| ToGateway::PoolsReady {
                    start_number,
                    version,
                    exposed,
                    pools,
                }
            ),
        (any::<u16>(), any::<u32>())
            .prop_map(|(pool, count)| ToGateway::StartFailed { pool, count }),
        (any::<u16>(), any::<u64>(), any::<u64>(), any::<bool>()).prop_map(
            |(pool, worker_cost, available, pressure)| ToGateway::Memory {
                pool,
                worker_cost,
                available,
                pressure
            }
        ),
        (any::<u32>(), any::<bool>(), ".*").prop_map(|(id, done, text)| ToGateway::ActionDone {
            id,
            done,
            text
        }),
        any::<bool>().prop_map(|last| ToGateway::Drain { last }),
        Just(ToGateway::Stop),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        Just(Action::Reload),
        Just(Action::Upgrade),
        ".*".prop_map(|pool| Action::RestartPool { pool }),
        any::<bool>().prop_map(|on| Action::Decline { on }),
        (".*", limits()).prop_map(|(pool, (max_children, maxconn))| Action::SetPool {
            pool,
            max_children,
            maxconn,
        }),
        Just(Action::Stop),
        Just(Action::StopNow),
    ]
}

fn to_manager() -> impl Strategy<Value = ToManager> {
    prop_oneof![
        Just(ToManager::Ready),
        Just(ToManager::WorkersStarted),
        ".*".prop_map(ToManager::Failed),
        ".*".prop_map(ToManager::Warning),
        (any::<u16>(), any::<u32>()).prop_map(|(pool, worker)| ToManager::Connect { pool, worker }),
        (any::<u16>(), any::<u32>()).prop_map(|(pool, worker)| ToManager::Kill { pool, worker }),
        (any::<u16>(), any::<u32>(), worker_request()).prop_map(|(pool, worker, request)| {
            ToManager::Terminate {
                pool,
                worker,
                request,
            }
        }),
        (any::<(u32, u32)>(), any::<(u64, u64)>(), any::<u32>()).prop_map(
            |((active, idle), (requests, slow), silent)| {
                let work = WorkerTotals {
                    active,
                    idle,
                    requests,
                    slow,
                };
                ToManager::Alive { silent, work }
            }
        ),
        holding().prop_map(ToManager::DrainStatus),
        addresses().prop_map(|(name, addresses)| ToManager::Addresses { name, addresses }),
        Just(ToManager::Drained),
        Just(ToManager::AcceptsNothing),
        Just(ToManager::KeeperSilent),
        any::<u32>().prop_map(ToManager::ChallengesSet),
        ".*".prop_map(ToManager::WantCertificate),
        Just(ToManager::Measure),
        (
            any::<u32>(),
            any::<u32>(),
            prop::collection::vec(any::<(u16, u32)>(), 0..=ToManager::MOST_ASKED)
        )
            .prop_map(|(id, inode, workers)| ToManager::FindOwner { id, inode, workers }),
        (any::<u32>(), any::<u32>(), any::<bool>()).prop_map(|(id, number, is_process)| {
            let whose = match is_process {
                true => CallSource::Process(number),
                false => CallSource::Socket(number),
            };
            ToManager::FindFormer { id, whose }
        }),
        (any::<u16>(), any::<u32>())
            .prop_map(|(pool, count)| ToManager::StartWorkers { pool, count }),
        (any::<u16>(), any::<u32>(), any::<bool>()).prop_map(|(pool, worker, spent)| {
            ToManager::Retire {
                pool,
                worker,
                spent,
            }
        }),
        (any::<u16>(), any::<u32>(), worker_request()).prop_map(|(pool, worker, request)| {
            ToManager::TraceWorker {
                pool,
                worker,
                request,
            }
        }),
        (any::<u32>(), action()).prop_map(|(id, action)| ToManager::Act { id, action }),
    ]
}

fn worker_request() -> impl Strategy<Value = WorkerRequest> {
    (".*", ".*", ".*", any::<u64>(), any::<u64>()).prop_map(
        |(script, method, uri, elapsed, number)| WorkerRequest {
            script,
            method,
            uri,
            elapsed,
            number,
        },
    )
}

proptest! {
    #[test]
    fn what_is_encoded_for_the_gateway_is_decoded(message in to_gateway()) {
        let (bytes, attached) = message.encode();
        let attached = attached.copied();
        prop_assert_eq!(ToGateway::decode(&bytes, attached), Ok(message.clone()));
        // A packet that is cut or lengthened, or has a descriptor too many or too few, is no message.
        prop_assert_eq!(ToGateway::decode(&bytes[..bytes.len() - 1], attached), Err(BadMessage));
        let longer = [bytes.as_slice(), &[0]].concat();
        prop_assert_eq!(ToGateway::decode(&longer, attached), Err(BadMessage));
        let other = if attached.is_some() { None } else { Some(0) };
        prop_assert_eq!(ToGateway::decode(&bytes, other), Err(BadMessage));
    }

    #[test]
    fn what_is_encoded_for_the_manager_is_decoded(message in to_manager()) {
        prop_assert_eq!(ToManager::decode(&message.encode()), Ok(message));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        attached in prop::option::of(any::<u8>()),
    ) {
        let _ = ToManager::decode(&bytes);
        if let Ok(message) = ToGateway::decode(&bytes, attached) {
            prop_assert_eq!(message.encode().0, bytes);
        }
    }
}

#[test]
fn a_long_text_is_cut_at_a_character() {
    let message = ToManager::Failed("ä".repeat(MAX_TEXT));
    let ToManager::Failed(text) = ToManager::decode(&message.encode()).unwrap() else {
        panic!("another message");
    };
    assert_eq!(text.len(), MAX_TEXT);
}

#[test]
fn a_message_arrives_with_its_descriptor_and_the_end_is_seen() {
    let (manager, gateway) = Channel::pair().unwrap();
    let text = weir_sys::memory::file(c"test", b"text").unwrap();
    manager.tell_gateway(&ToGateway::AccessLog(text)).unwrap();
    let Some(ToGateway::AccessLog(text)) = gateway.next_for_gateway().unwrap() else {
        panic!("another message");
    };
    assert_eq!(weir_sys::memory::read(text.as_fd(), 10).unwrap(), b"text");
    gateway.tell_manager(&ToManager::Ready).unwrap();
    assert_eq!(manager.next_for_manager().unwrap(), Some(ToManager::Ready));
    drop(gateway);
    assert_eq!(manager.next_for_manager().unwrap(), None);
}

#[test]
fn paths_are_translated_into_the_chroot_or_lie_outside() {
    let inside = |path: &str| path_inside(Path::new("/srv/weir"), Path::new(path));
    assert_eq!(inside("/srv/weir/site"), Some("/site".into()));
    assert_eq!(inside("/srv/weir"), Some("/".into()));
    assert_eq!(inside("/srv/weirder"), None);
    assert_eq!(inside("/etc"), None);
}
