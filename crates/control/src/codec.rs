//! The messages as packets: a byte for the kind, then the fields in the order in which they stand here.
//!
//! Decoding accepts exactly what encoding makes: no byte more or less, and no descriptor that does not belong to the
//! message.

use weir_sys::{identity::Identity, process::Exit, socket_owners::Owner};

use super::{
    Action, BadMessage, CallSource, CertificateOrder, CertificateOrders, Challenges, DemandReport,
    DrainStatus, EgressFiles, GivenCertificate, GivenChallenge, Health, Jail, ManagerCounts,
    OldGeneration, PoolUse, ProcessUse, ProgramEnd, ProgramProcess, ProgramReport, ProgramReports,
    Reactors, SlowPlace, Source, TicketSecrets, TlsFiles, ToGateway, ToManager, WorkerRequest,
    WorkerTotals,
    wire::{Field, Message, Reader, Writer, fields, messages, nested},
};

messages! {
    ToGateway<F>, attaching F, for any F;
    1 => Jail(jail),
    2 => Config { source, trace, reactors; text },
    3 => Listener { listener, reactor; socket },
    4 => AccessLog(; file),
    5 => ErrorLog(; file),
    6 => SpoolDir(; folder),
    7 => Opened { path; file },
    8 => Start,
    9 => Worker { pool, worker, pid, start_number, used; connection },
    10 => WorkerExited { pool, worker, pid, killed, exit },
    11 => PoolDown { pool, message },
    12 => Drain { last },
    13 => Stop,
    14 => PoolsReady { start_number, version, exposed, pools },
    15 => StartFailed { pool, count },
    16 => Memory { pool, worker_cost, available, pressure },
    17 => ActionDone { id, done, text },
    18 => PoolLog { pool; file },
    19 => Zygote { pool, pid, declined },
    21 => PhpLoad { template, own, pools },
    20 => AdminUnix(; socket),
    40 => AdminTcp(; socket),
    41 => AdminToken(token),
    42 => Decline { on },
    43 => Limits { pool, max_children, maxconn },
    44 => PoolUse { pools },
    45 => OwnUse { manager, gateway, counts },
    46 => EgressListener { listener; socket },
    47 => EgressFiles(; file),
    48 => BusPassword(password),
    60 => EgressLog(; file),
    61 => Owner { id, owner },
    70 => Ping,
    71 => OldGeneration(old),
    74 => SlowPlace(place),
    72 => LastReload { ago, done, text },
    73 => Addresses { name, addresses },
    80 => Certificates(; file),
    81 => CertificateChain { index; file },
    82 => CertificateKey { index; file },
    83 => Signer { reactor; socket },
    84 => TicketKeys(keys),
    85 => Challenges { number; file },
    86 => CertificateOrders(; file),
    94 => Programs(; file),
    87 => CertificateRefused { name, pause },
    88 => Quic { gateway, secret },
    89 => Datagrams { listener, reactor; socket },
    90 => Inbox { reactor; socket },
    91 => Outbox { gateway, reactor; socket },
    92 => GiveConnections(; channel),
    93 => TakeConnections(; channel),
    75 => Former { id, later, found },
    76 => ManagerLog(log),
}

messages! {
    ToManager, attaching ();
    1 => Ready,
    2 => Failed(message),
    3 => Warning(message),
    4 => Connect { pool, worker },
    5 => Kill { pool, worker },
    6 => Drained,
    7 => StartWorkers { pool, count },
    8 => Retire { pool, worker, spent },
    9 => TraceWorker { pool, worker, request },
    10 => Act { id, action },
    40 => Measure,
    60 => FindOwner { id, inode, workers },
    70 => Terminate { pool, worker, request },
    71 => DrainStatus(holding),
    73 => Addresses { name, addresses },
    74 => Alive { silent, work },
    75 => FindFormer { id, whose },
    76 => KeeperSilent,
    77 => ChallengesSet(number),
    78 => WantCertificate(name),
    79 => AcceptsNothing,
    80 => WorkersStarted,
}

messages! {
    Action, attaching ();
    1 => Reload,
    2 => RestartPool { pool },
    3 => Stop,
    4 => StopNow,
    5 => Decline { on },
    6 => SetPool { pool, max_children, maxconn },
    7 => Upgrade,
}

messages! {
    Exit, attaching ();
    0 => Code(code),
    1 => Signal(signal),
}

messages! {
    Owner, attaching ();
    0 => Nobody,
    1 => Barred,
    2 => Process(pid),
    3 => Later,
}

messages! {
    CallSource, attaching ();
    0 => Process(pid),
    1 => Socket(inode),
}

nested!(Action, Exit, Owner, CallSource);

fields! {
    Identity { uid, gid, groups }
    Jail { identity, own_user, chroot }
    Source { name, folder, cores, memory, open_files }
    Reactors { most, elastic }
    WorkerRequest { script, method, uri, elapsed, number }
    ProcessUse { cpu, memory, files }
    PoolUse { all, worker_memory }
    ManagerCounts { reloads, failed_reloads, gateway_restarts, gateway_hangs, oom_kills, reload_waits }
    SlowPlace { pool, pid, function, at }
    DrainStatus { connections, requests, calls, longest, request }
    OldGeneration { number, gateway, since, left, holding }
    Health { name, lost, lost_ago, failing, waiting }
    WorkerTotals { active, idle, requests, slow }
    EgressFiles { roots, files, env, users, socket }
    GivenCertificate { index, key, chain }
    TlsFiles { authorities, certificates, gone }
    TicketSecrets { keys }
    GivenChallenge { name, token, text, certificate }
    Challenges { list }
    CertificateOrder { name, on_demand, renew_at, done, failed, failures, error, failed_at, next }
    CertificateOrders { list, demand }
    ProgramReports { list, forgets }
    ProgramReport {
        name, pool, schedule, instances, processes, memory, elsewhere, next, last_start, last_end, failures, again_in, started, not_started,
        succeeded, failed, too_long, killed, skipped, made_up,
    }
    ProgramProcess { pid, time, ends }
    ProgramEnd { ago, how, is_failure, lived, said }
    DemandReport {
        kept, most, pending, allowed, refused, unanswered, limited, done, failed, lapsed, first_end, error,
    }
}

impl<F> ToGateway<F> {
    /// The packet, and the descriptor to attach.
    pub fn encode(&self) -> (Vec<u8>, Option<&F>) {
        let mut out = Writer::of_message();
        let attached = Message::put(self, &mut out);
        (out.bytes, attached)
    }

    /// Decodes a packet.
    ///
    /// # Errors
    /// For everything that [`encode`](Self::encode) does not make.
    pub fn decode(bytes: &[u8], mut attached: Option<F>) -> Result<Self, BadMessage> {
        let mut from = Reader { bytes };
        let message = Message::take(&mut from, &mut attached)?;
        from.end()?;
        match attached {
            None => Ok(message),
            Some(_) => Err(BadMessage),
        }
    }
}

impl ToManager {
    /// The packet.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::of_message();
        Message::put(self, &mut out);
        out.bytes
    }

    /// Decodes a packet.
    ///
    /// # Errors
    /// For everything that [`encode`](Self::encode) does not make.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let mut from = Reader { bytes };
        let message = Message::take(&mut from, &mut None)?;
        from.end()?;
        Ok(message)
    }
}

/// What the gateway gets as a file, because it may be longer than a message, and its maximum size, bytes.
macro_rules! files {
    ($($file:ident $most:expr;)*) => {$(
        impl $file {
            /// The content of the file for the gateway.
            pub fn encode(&self) -> Vec<u8> {
                encode_file(self)
            }

            /// Decodes the output of [`encode`](Self::encode).
            ///
            /// # Errors
            /// For everything else.
            pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
                decode_file(bytes)
            }

            /// Maximum size of the output of [`encode`](Self::encode), bytes.
            pub const MAX_ENCODED: usize = $most;
        }
    )*};
}

// 100,000 usual certificates.
files! {
    Challenges 64 << 20;
    CertificateOrders 64 << 20;
    ProgramReports 64 << 20;
    TlsFiles 512 << 20;
    EgressFiles 64 << 20;
}

/// The content of a file that is one value.
fn encode_file(value: &impl Field) -> Vec<u8> {
    let mut out = Writer::of_file();
    value.put(&mut out);
    out.bytes
}

/// Decodes the output of [`encode_file`].
fn decode_file<T: Field>(bytes: &[u8]) -> Result<T, BadMessage> {
    let mut from = Reader { bytes };
    let value = from.next()?;
    from.end()?;
    Ok(value)
}
