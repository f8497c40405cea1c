//! The keys of `[pool.NAME.queue]`.

use super::{
    Default::{Absent, Value},
    Kind, Row,
    Section::Queue,
    key,
};

#[rustfmt::skip]
pub(super) const QUEUE: &[Row] = &[
    key(&[Queue], "maxconn", Kind::Count { min: 1, max: 1_000_000 },
        Absent("`max_children` with php and command; with servers, weir finds the limit of each server"),
        "Maximum number of requests that run at once. With servers: the total number of workers on all servers (the sum of PHP-FPM's pm.max_children), shared by weight. A \
         server that is down lowers the total by its share."),
    key(&[Queue], "max_queue", Kind::Count { min: 0, max: 10_000_000 }, Value("1000"),
        "Maximum number of waiting requests. More are answered with 503 at once. 0: no request waits.").called(&["maxqueue", "backlog"]),
    key(&[Queue], "when_full", Kind::Word(&["refuse", "wait"], &[]), Value("\"refuse\""),
        "What happens to requests beyond `max_queue`. `refuse`: they are answered with 503. `wait`: FastCGI listeners of the pool accept \
         no more connections until there is room, so further ones wait in the kernel's queue; requests on accepted connections wait too."),
    key(&[Queue], "timeout", Kind::Duration { zero: false }, Value("\"10s\""),
        "Maximum waiting time; then 503 with Retry-After.").called(&["timeout_queue", "queue_timeout"]),
    key(&[Queue], "minconn", Kind::Count { min: 1, max: 1_000_000 }, Absent("the limit is always maxconn"),
        "With fullconn: minimum of the limit for running requests.").like("4"),
    key(&[Queue], "fullconn", Kind::Count { min: 1, max: 10_000_000 }, Absent("the limit is always maxconn"),
        "Load (running and waiting requests) at which the limit reaches maxconn. Below it, the limit is maxconn × load ÷ fullconn, \
         at least minconn."),
    key(&[Queue], "reserve", Kind::Reserves, Absent("none"),
        "Workers reserved for a priority: `[{ priority = -10, workers = 1 }]` keeps one worker free for requests \
         with priority -10 or a lower number. If only one worker is up, it is not reserved."),
    key(&[Queue], "serialize_by", Kind::SerializeBy, Absent("none"),
        "Requests of the pool with the same cookie or header run one after the other, for example `\"cookie:PHPSESSID\"`. \
         `\"auto\"` (weir's own PHP): requests of one session run one after the other, for scripts that hold the session's lock for most of their time. \
         A site or route can set another value. Each request waits for its turn for at most `timeout`, and then for a worker."),
    key(&[Queue], "serialize_queue", Kind::Count { min: 1, max: 1_000_000 }, Value("100"),
        "Maximum number of requests with the same key that wait for their turn. More are answered with 503 at once."),
    key(&[Queue], "client_share", Kind::Count { min: 1, max: 100 }, Value("50"),
        "Maximum share of the workers, in percent, that one client may use while other clients with the same priority wait (rounded \
         down, but at least one worker). `fair_by` identifies clients. While no other client waits, one client may use all workers. 100: no limit."),
    key(&[Queue], "order", Kind::Word(&["adaptive", "fifo"], &[]), Value("\"adaptive\""),
        "`\"adaptive\"`: under lasting overload, the queue is kept short, further requests are answered with 503 at once, \
         and requests that have waited long go last. `\"fifo\"`: always in order of arrival."),
];
