//! Encodes messages as packets: a byte for the kind, then the fields.
//!
//! Decoding accepts exactly what encoding makes: no byte more or less, and no descriptor that does not belong to the
//! message.

use std::time::Duration;

use weir_sys::{identity::Identity, process::Exit, socket_owners::Owner};

use super::{
    Action, BadMessage, Health, Jail, ManagerCounts, OldGeneration, Reactors, Source, ToGateway,
    ToManager, Told, Whose, Work,
    wire::{Reader, Writer},
};

impl Writer {
    fn told(&mut self, told: &Told) {
        self.text(&told.script);
        self.text(&told.method);
        self.text(&told.uri);
        self.u64(told.elapsed);
        self.u64(told.request);
    }
}

impl Reader<'_> {
    fn told(&mut self) -> Result<Told, BadMessage> {
        Ok(Told {
            script: self.text()?,
            method: self.text()?,
            uri: self.text()?,
            elapsed: self.u64()?,
            request: self.u64()?,
        })
    }
}

impl<F> ToGateway<F> {
    /// The packet, and the descriptor to attach.
    pub fn encode(&self) -> (Vec<u8>, Option<&F>) {
        let mut out = Writer::default();
        let attached = match self {
            Self::Jail(jail) => {
                out.u8(1);
                out.option(jail.identity.as_ref(), |out, identity| {
                    out.u32(identity.uid);
                    out.u32(identity.gid);
                    out.u32(identity.groups.len() as u32);
                    identity.groups.iter().for_each(|group| out.u32(*group));
                });
                out.option(jail.own_user, |out, user| out.u32(user));
                out.option(jail.chroot.as_ref(), |out, path| out.path(path));
                None
            }
            Self::Config {
                source,
                trace,
                reactors,
                text,
            } => {
                out.u8(2);
                out.text(&source.name);
                out.path(&source.folder);
                out.u64(source.cores);
                out.u64(source.memory);
                out.u64(source.open_files);
                out.u8((*trace).into());
                out.u16(reactors.most);
                out.u8(reactors.elastic.into());
                Some(text)
            }
            Self::Listener {
                listener,
                reactor,
                socket,
            } => {
                out.u8(3);
                out.u16(*listener);
                out.u16(*reactor);
                Some(socket)
            }
            Self::AccessLog(file) => {
                out.u8(4);
                Some(file)
            }
            Self::PoolLog { pool, file } => {
                out.u8(18);
                out.u16(*pool);
                Some(file)
            }
            Self::ErrorLog(file) => {
                out.u8(5);
                Some(file)
            }
            Self::EgressLog(file) => {
                out.u8(60);
                Some(file)
            }
            Self::SpoolDir(folder) => {
                out.u8(6);
                Some(folder)
            }
            Self::Opened { path, file } => {
                out.u8(7);
                out.path(path);
                Some(file)
            }
            Self::EgressListener { listener, socket } => {
                out.u8(46);
                out.u16(*listener);
                Some(socket)
            }
            Self::EgressFiles(file) => {
                out.u8(47);
                Some(file)
            }
            Self::Start => {
                out.u8(8);
                None
            }
            Self::Worker {
                pool,
                worker,
                pid,
                generation,
                used,
                connection,
            } => {
                out.of_pool(9, *pool, *worker);
                out.u32(*pid);
                out.u32(*generation);
                out.u8((*used).into());
                Some(connection)
            }
            Self::WorkerExited {
                pool,
                worker,
                pid,
                exit,
                killed,
            } => {
                out.of_pool(10, *pool, *worker);
                out.u32(*pid);
                out.u8((*killed).into());
                let (kind, number) = match *exit {
                    Exit::Code(code) => (0, code),
                    Exit::Signal(signal) => (1, signal),
                };
                out.u8(kind);
                out.u32(number.cast_unsigned());
                None
            }
            Self::PoolDown { pool, message } => {
                out.u8(11);
                out.u16(*pool);
                out.text(message);
                None
            }
            Self::Drain { last } => {
                out.u8(12);
                out.u8(u8::from(*last));
                None
            }
            Self::Ping => {
                out.u8(70);
                None
            }
            Self::Addresses { name, addresses } => {
                out.u8(73);
                out.addresses(name, addresses);
                None
            }
            Self::Stop => {
                out.u8(13);
                None
            }
            Self::Window(socket) => {
                out.u8(20);
                Some(socket)
            }
            Self::WindowTcp(socket) => {
                out.u8(40);
                Some(socket)
            }
            Self::WindowToken(token) => {
                out.u8(41);
                out.text(token);
                None
            }
            Self::Decline { on } => {
                out.u8(42);
                out.u8((*on).into());
                None
            }
            Self::Limits {
                pool,
                max_children,
                maxconn,
            } => {
                out.u8(43);
                out.u16(*pool);
                out.option(max_children.as_ref(), |out, number| out.u32(*number));
                out.option(maxconn.as_ref(), |out, number| out.u32(*number));
                None
            }
            Self::PoolUse {
                pool,
                all,
                worker_memory,
            } => {
                out.u8(44);
                out.u16(*pool);
                out.of_process(*all);
                out.u64(*worker_memory);
                None
            }
            Self::OwnUse {
                manager,
                gateway,
                counts,
            } => {
                out.u8(45);
                out.of_process(*manager);
                out.of_process(*gateway);
                out.u64(counts.reloads);
                out.u64(counts.failed_reloads);
                out.u64(counts.gateway_restarts);
                out.u64(counts.gateway_hangs);
                out.u64(counts.oom_kills);
                out.u8(counts.reload_waits.into());
                None
            }
            Self::OldGeneration(old) => {
                out.u8(71);
                out.u32(old.number);
                out.u32(old.gateway);
                out.u64(old.since);
                out.u64(old.left);
                out.holding(&old.holding);
                None
            }
            Self::LastReload { ago, done, text } => {
                out.u8(72);
                out.u64(*ago);
                out.u8((*done).into());
                out.text(text);
                None
            }
            Self::ManagerLog(log) => {
                out.u8(76);
                out.text(&log.name);
                out.u64(log.lost);
                out.option(log.lost_ago, |out, ago| {
                    out.u64(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX));
                });
                out.option(log.failing.as_deref(), Writer::text);
                out.u64(log.waiting as u64);
                None
            }
            Self::PoolReady {
                pool,
                generation,
                version,
                exposed,
            } => {
                out.u8(14);
                out.u16(*pool);
                out.u32(*generation);
                out.text(version);
                out.u8((*exposed).into());
                None
            }
            Self::StartFailed { pool, count } => {
                out.of_pool(15, *pool, *count);
                None
            }
            Self::Memory {
                pool,
                worker_cost,
                available,
                pressure,
            } => {
                out.u8(16);
                out.u16(*pool);
                out.u64(*worker_cost);
                out.u64(*available);
                out.u8((*pressure).into());
                None
            }
            Self::ActionDone { id, done, text } => {
                out.u8(17);
                out.u32(*id);
                out.u8((*done).into());
                out.text(text);
                None
            }
            Self::Former { id, found, later } => {
                out.u8(75);
                out.u32(*id);
                out.u8((*later).into());
                out.u8(found.is_some().into());
                if let Some((pid, pool)) = found {
                    out.u32(*pid);
                    out.text(pool);
                }
                None
            }
            Self::Owner { id, owner } => {
                out.u8(61);
                out.u32(*id);
                let (kind, pid) = match *owner {
                    Owner::Nobody => (0, 0),
                    Owner::Barred => (1, 0),
                    Owner::Process(pid) => (2, pid),
                    Owner::Later => (3, 0),
                };
                out.u8(kind);
                out.u32(pid);
                None
            }
        };
        (out.bytes, attached)
    }

    /// Decodes a packet.
    ///
    /// # Errors
    /// For everything that [`encode`](Self::encode) does not make.
    pub fn decode(bytes: &[u8], attached: Option<F>) -> Result<Self, BadMessage> {
        let mut from = Reader { bytes };
        let had_descriptor = attached.is_some();
        let mut attached = attached;
        let mut take = || attached.take().ok_or(BadMessage);
        let message = match from.u8()? {
            1 => Self::Jail(Jail {
                identity: from.option(|from| {
                    let (uid, gid) = (from.u32()?, from.u32()?);
                    let count = from.u32()?;
                    let groups = (0..count).map(|_| from.u32()).collect::<Result<_, _>>()?;
                    Ok(Identity { uid, gid, groups })
                })?,
                own_user: from.option(Reader::u32)?,
                chroot: from.option(Reader::path)?,
            }),
            2 => Self::Config {
                source: Source {
                    name: from.text()?,
                    folder: from.path()?,
                    cores: from.u64()?,
                    memory: from.u64()?,
                    open_files: from.u64()?,
                },
                trace: from.flag()?,
                reactors: Reactors {
                    most: from.u16()?,
                    elastic: from.flag()?,
                },
                text: take()?,
            },
            3 => Self::Listener {
                listener: from.u16()?,
                reactor: from.u16()?,
                socket: take()?,
            },
            4 => Self::AccessLog(take()?),
            5 => Self::ErrorLog(take()?),
            60 => Self::EgressLog(take()?),
            75 => Self::Former {
                id: from.u32()?,
                later: from.flag()?,
                found: match from.u8()? {
                    0 => None,
                    1 => Some((from.u32()?, from.text()?)),
                    _ => return Err(BadMessage),
                },
            },
            61 => Self::Owner {
                id: from.u32()?,
                owner: match (from.u8()?, from.u32()?) {
                    (0, 0) => Owner::Nobody,
                    (1, 0) => Owner::Barred,
                    (2, pid) => Owner::Process(pid),
                    (3, 0) => Owner::Later,
                    _ => return Err(BadMessage),
                },
            },
            18 => Self::PoolLog {
                pool: from.u16()?,
                file: take()?,
            },
            6 => Self::SpoolDir(take()?),
            7 => Self::Opened {
                path: from.path()?,
                file: take()?,
            },
            46 => Self::EgressListener {
                listener: from.u16()?,
                socket: take()?,
            },
            47 => Self::EgressFiles(take()?),
            8 => Self::Start,
            9 => Self::Worker {
                pool: from.u16()?,
                worker: from.u32()?,
                pid: from.u32()?,
                generation: from.u32()?,
                used: from.flag()?,
                connection: take()?,
            },
            10 => Self::WorkerExited {
                pool: from.u16()?,
                worker: from.u32()?,
                pid: from.u32()?,
                killed: from.flag()?,
                exit: match (from.u8()?, from.u32()?.cast_signed()) {
                    (0, code) => Exit::Code(code),
                    (1, signal) => Exit::Signal(signal),
                    _ => return Err(BadMessage),
                },
            },
            11 => Self::PoolDown {
                pool: from.u16()?,
                message: from.text()?,
            },
            12 => Self::Drain {
                last: from.u8()? != 0,
            },
            70 => Self::Ping,
            73 => {
                let (name, addresses) = from.addresses()?;
                Self::Addresses { name, addresses }
            }
            13 => Self::Stop,
            20 => Self::Window(take()?),
            40 => Self::WindowTcp(take()?),
            41 => Self::WindowToken(from.text()?),
            42 => Self::Decline { on: from.flag()? },
            43 => Self::Limits {
                pool: from.u16()?,
                max_children: from.option(Reader::u32)?,
                maxconn: from.option(Reader::u32)?,
            },
            44 => Self::PoolUse {
                pool: from.u16()?,
                all: from.of_process()?,
                worker_memory: from.u64()?,
            },
            45 => Self::OwnUse {
                manager: from.of_process()?,
                gateway: from.of_process()?,
                counts: ManagerCounts {
                    reloads: from.u64()?,
                    failed_reloads: from.u64()?,
                    gateway_restarts: from.u64()?,
                    gateway_hangs: from.u64()?,
                    oom_kills: from.u64()?,
                    reload_waits: from.flag()?,
                },
            },
            71 => Self::OldGeneration(OldGeneration {
                number: from.u32()?,
                gateway: from.u32()?,
                since: from.u64()?,
                left: from.u64()?,
                holding: from.holding()?,
            }),
            72 => Self::LastReload {
                ago: from.u64()?,
                done: from.flag()?,
                text: from.text()?,
            },
            76 => Self::ManagerLog(Health {
                name: from.text()?,
                lost: from.u64()?,
                lost_ago: from.option(Reader::u64)?.map(Duration::from_millis),
                failing: from.option(Reader::text)?,
                waiting: usize::try_from(from.u64()?).map_err(|_| BadMessage)?,
            }),
            14 => Self::PoolReady {
                pool: from.u16()?,
                generation: from.u32()?,
                version: from.text()?,
                exposed: from.flag()?,
            },
            15 => Self::StartFailed {
                pool: from.u16()?,
                count: from.u32()?,
            },
            16 => Self::Memory {
                pool: from.u16()?,
                worker_cost: from.u64()?,
                available: from.u64()?,
                pressure: from.flag()?,
            },
            17 => Self::ActionDone {
                id: from.u32()?,
                done: from.flag()?,
                text: from.text()?,
            },
            _ => return Err(BadMessage),
        };
        // An extra descriptor, or extra bytes.
        if (had_descriptor && attached.is_some()) || !from.bytes.is_empty() {
            return Err(BadMessage);
        }
        Ok(message)
    }
}

impl ToManager {
    /// The packet.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Ready => out.u8(1),
            Self::Failed(message) => {
                out.u8(2);
                out.text(message);
            }
            Self::Warning(message) => {
                out.u8(3);
                out.text(message);
            }
            Self::Connect { pool, worker } => out.of_pool(4, *pool, *worker),
            Self::Kill { pool, worker } => out.of_pool(5, *pool, *worker),
            Self::Terminate { pool, worker, told } => {
                out.of_pool(70, *pool, *worker);
                out.told(told);
            }
            Self::Drained => out.u8(6),
            Self::Measure => out.u8(40),
            Self::StartWorkers { pool, count } => out.of_pool(7, *pool, *count),
            Self::Retire {
                pool,
                worker,
                spent,
            } => {
                out.of_pool(8, *pool, *worker);
                out.u8(u8::from(*spent));
            }
            Self::TraceWorker { pool, worker, told } => {
                out.of_pool(9, *pool, *worker);
                out.told(told);
            }
            Self::Addresses { name, addresses } => {
                out.u8(73);
                out.addresses(name, addresses);
            }
            Self::Holding(holding) => {
                out.u8(71);
                out.holding(holding);
            }
            Self::Alive { silent, work } => {
                out.u8(74);
                out.u32(*silent);
                out.u32(work.active);
                out.u32(work.idle);
                out.u64(work.requests);
                out.u64(work.slow);
            }
            Self::FindFormer { id, whose } => {
                out.u8(75);
                out.u32(*id);
                let (kind, number) = match *whose {
                    Whose::Process(pid) => (0, pid),
                    Whose::Socket(inode) => (1, inode),
                };
                out.u8(kind);
                out.u32(number);
            }
            Self::FindOwner { id, inode, workers } => {
                out.u8(60);
                out.u32(*id);
                out.u32(*inode);
                let workers = &workers[..workers.len().min(Self::MOST_ASKED)];
                out.u16(workers.len() as u16);
                for (pool, worker) in workers {
                    out.u16(*pool);
                    out.u32(*worker);
                }
            }
            Self::Act { id, action } => {
                out.u8(10);
                out.u32(*id);
                match action {
                    Action::Reload => out.u8(1),
                    Action::RestartPool { pool } => {
                        out.u8(2);
                        out.text(pool);
                    }
                    Action::Decline { on } => {
                        out.u8(5);
                        out.u8((*on).into());
                    }
                    Action::SetPool {
                        pool,
                        max_children,
                        maxconn,
                    } => {
                        out.u8(6);
                        out.text(pool);
                        out.option(max_children.as_ref(), |out, number| out.u32(*number));
                        out.option(maxconn.as_ref(), |out, number| out.u32(*number));
                    }
                    Action::Stop => out.u8(3),
                    Action::StopNow => out.u8(4),
                }
            }
        }
        out.bytes
    }

    /// Decodes a packet.
    ///
    /// # Errors
    /// For everything that [`encode`](Self::encode) does not make.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let mut from = Reader { bytes };
        let message = match from.u8()? {
            1 => Self::Ready,
            2 => Self::Failed(from.text()?),
            3 => Self::Warning(from.text()?),
            4 => Self::Connect {
                pool: from.u16()?,
                worker: from.u32()?,
            },
            5 => Self::Kill {
                pool: from.u16()?,
                worker: from.u32()?,
            },
            70 => Self::Terminate {
                pool: from.u16()?,
                worker: from.u32()?,
                told: from.told()?,
            },
            6 => Self::Drained,
            73 => {
                let (name, addresses) = from.addresses()?;
                Self::Addresses { name, addresses }
            }
            71 => Self::Holding(from.holding()?),
            74 => Self::Alive {
                silent: from.u32()?,
                work: Work {
                    active: from.u32()?,
                    idle: from.u32()?,
                    requests: from.u64()?,
                    slow: from.u64()?,
                },
            },
            40 => Self::Measure,
            7 => Self::StartWorkers {
                pool: from.u16()?,
                count: from.u32()?,
            },
            8 => Self::Retire {
                pool: from.u16()?,
                worker: from.u32()?,
                spent: from.flag()?,
            },
            9 => Self::TraceWorker {
                pool: from.u16()?,
                worker: from.u32()?,
                told: from.told()?,
            },
            75 => Self::FindFormer {
                id: from.u32()?,
                whose: match (from.u8()?, from.u32()?) {
                    (0, pid) => Whose::Process(pid),
                    (1, inode) => Whose::Socket(inode),
                    _ => return Err(BadMessage),
                },
            },
            60 => Self::FindOwner {
                id: from.u32()?,
                inode: from.u32()?,
                workers: {
                    let count = usize::from(from.u16()?);
                    if count > Self::MOST_ASKED {
                        return Err(BadMessage);
                    }
                    let workers = (0..count).map(|_| Ok((from.u16()?, from.u32()?)));
                    workers.collect::<Result<_, BadMessage>>()?
                },
            },
            10 => Self::Act {
                id: from.u32()?,
                action: match from.u8()? {
                    1 => Action::Reload,
                    2 => Action::RestartPool { pool: from.text()? },
                    3 => Action::Stop,
                    4 => Action::StopNow,
                    5 => Action::Decline { on: from.flag()? },
                    6 => Action::SetPool {
                        pool: from.text()?,
                        max_children: from.option(Reader::u32)?,
                        maxconn: from.option(Reader::u32)?,
                    },
                    _ => return Err(BadMessage),
                },
            },
            _ => return Err(BadMessage),
        };
        if !from.bytes.is_empty() {
            return Err(BadMessage);
        }
        Ok(message)
    }
}
