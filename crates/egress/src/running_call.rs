//! A running call, and the log line that is written at its end, in every case.

use std::{sync::Arc, time::SystemTime};

use http::{Method, StatusCode};
use weir_observe::clock;
use weir_upstream::HostCounters;

use super::{
    Egress,
    body::BodyEnd,
    callers::ActiveCall,
    fault::{Fault, Kind},
    host::Host,
    message::Reply,
    record::{CacheUse, CallRecord, Caller},
    target::Target,
    tunnel::Carried,
    upload::{Progress, Upload},
};

/// What is known of a call. It is boxed, because it is moved often.
pub(crate) struct RunningCall {
    egress: Arc<Egress>,
    calling: Arc<ActiveCall>,
    pub(crate) host: Option<Arc<Host>>,
    /// The pool whose worker calls, if it is known from the beginning.
    pool: Option<Arc<str>>,
    pub(crate) record: CallRecord,
    /// When its head had arrived ([`clock::now`]).
    began: u64,
    upload: Option<Arc<Progress>>,
    written: bool,
}

impl RunningCall {
    /// The head of the call has arrived.
    pub(crate) fn begin(
        egress: &Arc<Egress>,
        calling: &Arc<ActiveCall>,
        method: &Method,
    ) -> Box<RunningCall> {
        Box::new(RunningCall {
            egress: egress.clone(),
            calling: calling.clone(),
            host: None,
            pool: None,
            record: CallRecord {
                at: SystemTime::now(),
                method: method.clone(),
                origin: None,
                path: None,
                form: None,
                status: None,
                fault: None,
                connection: None,
                waited: 0,
                first_byte: None,
                total: 0,
                retries: 0,
                bytes_in: 0,
                bytes_out: 0,
                caller_left: false,
                cache: CacheUse::None,
                caller: Caller::default(),
            },
            began: clock::now(),
            upload: None,
            written: false,
        })
    }

    /// Sets the target. The origin is set with the host, or by [`refused`](Self::refused).
    pub(crate) fn is_for(&mut self, target: &Target) {
        self.record.form = Some(target.form);
        self.record.path = Some(target.path.clone());
    }

    /// The call is allowed, and its host is known.
    pub(crate) fn asks(&mut self, host: &Arc<Host>) {
        self.record.origin = Some(host.origin.clone());
        self.host = Some(host.clone());
        self.pool = self.calling.caller().pool;
        if let Some(pool) = &self.pool {
            host.figures.pool_calls(pool);
        }
    }

    /// The call is not allowed.
    pub(crate) fn refused(&mut self, target: Target) {
        self.record.origin = Some(Arc::new(target.origin));
    }

    /// Notes the body of the call.
    pub(crate) fn upload(&mut self, upload: &Upload) {
        self.record.bytes_in = upload.length().unwrap_or(0);
        self.upload = upload.progress();
    }

    /// Logs a fault in the error log; repeated faults of one origin only from time to time.
    pub(crate) fn complain(&self, fault: &Fault) {
        if let Some(host) = &self.host
            && fault.kind.blames_origin()
        {
            host.figures.failed(fault);
        }
        self.egress
            .complaints
            .tell(self.record.origin.as_deref(), fault);
    }

    /// Passes an answer on; the log line is written when it has ended.
    pub(crate) fn answer(mut self: Box<Self>, reply: Reply) -> Reply {
        self.record.status = Some(reply.status);
        let body = reply.body.then(move |how, bytes| self.ended(how, bytes));
        Reply { body, ..reply }
    }

    fn ended(mut self: Box<Self>, how: BodyEnd, bytes: u64) {
        self.record.bytes_out = bytes;
        match how {
            BodyEnd::Whole => {}
            BodyEnd::Cut(kind) => {
                self.record.fault = Some(kind);
                let what = match &self.record.origin {
                    Some(origin) => origin.to_string(),
                    None => String::new(),
                };
                self.complain(&Fault::sent(
                    kind,
                    format!("{what}: its answer ended early, so the answer to the caller was cut off too"),
                ));
            }
            BodyEnd::Left => self.record.caller_left = true,
        }
        self.write();
    }

    /// The tunnel of this call has ended.
    pub(crate) fn tunnel_ended(mut self: Box<Self>, carried: &Carried) {
        self.record.bytes_in = carried.up;
        self.record.bytes_out = carried.down;
        self.record.status = Some(StatusCode::OK);
        if carried.silent {
            self.record.fault = Some(Kind::ResponseTimeout);
        }
        self.write();
    }

    /// Moves it elsewhere; this one writes no line.
    pub(crate) fn take(&mut self) -> Box<RunningCall> {
        self.written = true;
        Box::new(RunningCall {
            egress: self.egress.clone(),
            calling: self.calling.clone(),
            host: self.host.clone(),
            pool: self.pool.take(),
            record: self.record.clone(),
            began: self.began,
            upload: None,
            written: false,
        })
    }

    fn write(&mut self) {
        if std::mem::replace(&mut self.written, true) {
            return;
        }
        if let (Some(host), Some(pool)) = (&self.host, &self.pool) {
            host.figures.pool_called(pool);
        }
        let record = &mut self.record;
        record.total = clock::now().saturating_sub(self.began);
        if let Some(upload) = &self.upload {
            record.bytes_in = upload.bytes();
        }
        record.caller = self.calling.caller();
        match (&self.host, record.fault) {
            (Some(host), _) => host.figures.call_ended(record),
            (None, Some(kind)) => self.egress.figures.refused(kind),
            (None, None) => {}
        }
        self.egress.log.write(record);
    }
}

impl Drop for RunningCall {
    /// If no line was written, the caller left before there was an answer.
    fn drop(&mut self) {
        if !self.written {
            self.record.caller_left = true;
            self.write();
        }
    }
}
