//! The body of the answer that a caller gets.
//!
//! The layers from the origin outwards: [`Guarded`] is the origin's body with the resources that it holds
//! (connection, place) and its timeouts. The cache and the compressor wrap it. The caller's carrier gets [`ResponseBody`],
//! which counts the sent bytes and reports once how it ended.
//!
//! A body that ends too early is an error, and the carrier then cuts the caller's connection. So an incomplete answer
//! never looks complete.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;
use weir_observe::clock;

use super::{cache::Filling, compress::Compressed, connections::Interrupted, fault::Kind, message};
use weir_http::{self as carrier, Part, Truncated, Tunnel};

/// The body of an answer for the caller.
pub(crate) struct ResponseBody {
    source: Source,
    /// How many bytes were given to the carrier.
    sent: u64,
    /// How many bytes are left, if the length was known at the start.
    left: Option<u64>,
    /// Whether the caller accepts trailers.
    takes_trailers: bool,
    tell: Option<Tell>,
}

/// Called with how an answer ended, and how many bytes of its body were given to the carrier.
type Tell = Box<dyn FnOnce(BodyEnd, u64) + Send>;

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    /// All of it was given to the carrier.
    Whole,
    /// The origin stopped before the end, or took too long.
    Cut(Kind),
    /// The caller left before the end.
    Left,
}

/// The source of the bytes.
pub(super) enum Source {
    /// No bytes.
    Empty,
    /// From memory.
    Bytes(Bytes),
    /// From the origin, a [`Guarded`].
    Origin(Pin<Box<dyn Body<Data = Bytes, Error = BodyError> + Send>>),
    /// Another source, compressed.
    Compressed(Box<Compressed>),
    /// Another source, which the cache reads.
    Filling(Box<Filling>),
    /// The bytes after the head are not HTTP.
    Tunnel(Tunnel),
}

/// Why a body ended too early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BodyError(pub(crate) Kind);

/// A body from the origin, with the resources that are held until its end: its connection, its place.
///
/// `guard` is dropped when the last byte has arrived, or the error; it does not wait until the caller has read it.
pub(crate) struct Guarded<B, G> {
    /// `None` after the end. The body is dropped first, because it belongs to the connection.
    held: Option<(B, G)>,
    pace: BodyTimeouts,
    /// When the last piece arrived ([`clock::now`]).
    last: u64,
    /// Runs while a piece is awaited. It is not reset with each piece; when it fires, `last` is checked.
    timer: Option<Pin<Box<Sleep>>>,
}

/// The timeouts of a body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyTimeouts {
    /// Maximum time between two pieces; zero: no limit.
    pub(crate) read_timeout: Duration,
    /// The whole body must have arrived by then ([`clock::now`]).
    pub(crate) deadline: u64,
    /// The error if it has not: the call's own limit, or the limit of the request that the call belongs to.
    pub(crate) overdue: Kind,
}

#[cfg(test)]
impl BodyTimeouts {
    /// No limits.
    pub(crate) const ANY: BodyTimeouts = BodyTimeouts {
        read_timeout: Duration::ZERO,
        deadline: clock::NEVER,
        overdue: Kind::ResponseTimeout,
    };
}

impl ResponseBody {
    /// No bytes; also used for HEAD.
    pub(crate) fn empty() -> ResponseBody {
        ResponseBody::new(Source::Empty)
    }

    /// From memory.
    pub(crate) fn bytes(bytes: impl Into<Bytes>) -> ResponseBody {
        let bytes = bytes.into();
        match bytes.is_empty() {
            true => ResponseBody::empty(),
            false => ResponseBody::new(Source::Bytes(bytes)),
        }
    }

    /// The origin's body. If it has no bytes, it ends at once and its guard is dropped.
    pub(crate) fn origin<B, G>(body: Guarded<B, G>) -> ResponseBody
    where
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Blame,
        G: Unpin + Send + 'static,
    {
        match body.is_end_stream() {
            true => ResponseBody::empty(),
            false => ResponseBody::new(Source::Origin(Box::pin(body))),
        }
    }

    /// The connection becomes a tunnel.
    pub(crate) fn tunnel(tunnel: Tunnel) -> ResponseBody {
        ResponseBody::new(Source::Tunnel(tunnel))
    }

    /// Whether the connection becomes a tunnel.
    pub(crate) fn is_tunnel(&self) -> bool {
        matches!(self.source, Source::Tunnel(_))
    }

    pub(super) fn new(source: Source) -> ResponseBody {
        ResponseBody {
            left: source.size_hint().exact(),
            source,
            sent: 0,
            takes_trailers: false,
            tell: None,
        }
    }

    /// The body for the carrier, with the length if it is known. `takes_trailers`: the caller has
    /// announced that it accepts them.
    pub(crate) fn carried(mut self, takes_trailers: bool) -> (carrier::Body, Option<u64>) {
        if self.is_tunnel()
            && let Source::Tunnel(tunnel) = std::mem::replace(&mut self.source, Source::Empty)
        {
            return (carrier::Body::Tunnel(tunnel), None);
        }
        if self.is_end_stream() {
            return (carrier::Body::Empty, Some(0));
        }
        if let Source::Bytes(bytes) = &mut self.source {
            let bytes = std::mem::take(bytes);
            let length = bytes.len() as u64;
            self.sent = length;
            self.ended(BodyEnd::Whole);
            return (carrier::Body::Bytes(bytes), Some(length));
        }
        self.takes_trailers = takes_trailers;
        let length = self.size_hint().exact();
        (carrier::Body::Stream(Box::new(self)), length)
    }

    /// `tell` is called once: after the last byte was given to the carrier, or when it is known
    /// that no more will follow.
    pub(crate) fn then(mut self, tell: impl FnOnce(BodyEnd, u64) + Send + 'static) -> ResponseBody {
        self.tell = Some(Box::new(tell));
        self
    }

    /// Takes the rest as a source for another layer. Only before [`ResponseBody::then`].
    pub(super) fn into_source(mut self) -> Source {
        std::mem::replace(&mut self.source, Source::Empty)
    }

    fn ended(&mut self, how: BodyEnd) {
        self.source = Source::Empty;
        self.left = Some(0);
        if let Some(tell) = self.tell.take() {
            tell(how, self.sent);
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let frame = match ready!(this.source.poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                this.ended(BodyEnd::Cut(error.0));
                return Poll::Ready(Some(Err(error)));
            }
            None => {
                this.ended(BodyEnd::Whole);
                return Poll::Ready(None);
            }
        };
        if let Some(data) = frame.data_ref() {
            let len = data.len() as u64;
            this.sent += len;
            this.left = this.left.map(|left| left.saturating_sub(len));
        } else if frame.is_trailers() {
            // Trailers are the last frame: the body is not polled again.
            this.ended(BodyEnd::Whole);
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.left {
            Some(left) => SizeHint::with_exact(left),
            None => self.source.size_hint(),
        }
    }
}

impl carrier::Stream for ResponseBody {
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Part, Truncated>>> {
        loop {
            let frame = match ready!(Pin::new(&mut *self).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(_)) => return Poll::Ready(Some(Err(Truncated))),
                None => return Poll::Ready(None),
            };
            return Poll::Ready(match frame.into_data() {
                Ok(data) if data.is_empty() => continue,
                Ok(data) => Some(Ok(Part::Bytes(data))),
                Err(frame) => {
                    let trailers = frame.into_trailers().ok().filter(|_| self.takes_trailers);
                    trailers.map(|trailers| Ok(Part::Trailers(message::lines(&trailers))))
                }
            });
        }
    }
}

impl Drop for ResponseBody {
    /// The carrier drops a body without polling its end if its known length is reached, or if no body is sent (HEAD,
    /// 304).
    fn drop(&mut self) {
        let whole = self.left == Some(0) || self.source.is_end_stream();
        self.ended(if whole { BodyEnd::Whole } else { BodyEnd::Left });
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody")
            .field("sent", &self.sent)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

impl Source {
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self {
            Source::Empty | Source::Tunnel(_) => Poll::Ready(None),
            Source::Bytes(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Source::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Source::Origin(body) => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                if !matches!(frame, Some(Ok(_))) {
                    *self = Source::Empty;
                }
                Poll::Ready(frame)
            }
            Source::Compressed(body) => body.poll_frame(cx),
            Source::Filling(body) => body.poll_frame(cx),
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        match self {
            Source::Empty | Source::Tunnel(_) => true,
            Source::Bytes(_) => false,
            Source::Origin(body) => body.is_end_stream(),
            Source::Compressed(body) => body.is_end_stream(),
            Source::Filling(body) => body.is_end_stream(),
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match self {
            Source::Empty | Source::Tunnel(_) => SizeHint::with_exact(0),
            Source::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Origin(body) => body.size_hint(),
            Source::Compressed(_) => SizeHint::default(),
            Source::Filling(body) => body.size_hint(),
        }
    }
}

impl<B: Body, G> Guarded<B, G> {
    /// A body that holds `guard` until its end.
    pub(crate) fn new(body: B, guard: G, pace: BodyTimeouts) -> Self {
        let held = (!body.is_end_stream()).then_some((body, guard));
        Guarded {
            held,
            pace,
            last: clock::now(),
            timer: None,
        }
    }

    /// Ready when the awaited piece takes too long.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Kind> {
        let piece = match self.pace.read_timeout.as_micros() as u64 {
            0 => clock::NEVER,
            timeout => self.last.saturating_add(timeout),
        };
        let by = piece.min(self.pace.deadline);
        if by == clock::NEVER {
            return Poll::Pending;
        }
        loop {
            let now = clock::now();
            if now >= by {
                return Poll::Ready(match by == self.pace.deadline {
                    true => self.pace.overdue,
                    false => Kind::ResponseTimeout,
                });
            }
            let until = || tokio::time::Instant::now() + Duration::from_micros(by - now);
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until())));
            ready!(timer.as_mut().poll(cx));
            timer.as_mut().reset(until());
        }
    }
}

impl<B, G> Body for Guarded<B, G>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Blame,
    G: Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let Some((body, _)) = &mut this.held else {
            return Poll::Ready(None);
        };
        match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Ready(Some(Ok(mut frame))) => {
                if let Some(trailers) = frame.trailers_mut() {
                    weir_upstream::hop::trailers(trailers);
                }
                if body.is_end_stream() || frame.is_trailers() {
                    this.held = None;
                }
                this.last = clock::now();
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                this.held = None;
                Poll::Ready(Some(Err(BodyError(error.kind()))))
            }
            Poll::Ready(None) => {
                this.held = None;
                Poll::Ready(None)
            }
            Poll::Pending => {
                let kind = ready!(this.poll_late(cx));
                this.held = None;
                Poll::Ready(Some(Err(BodyError(kind))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.held {
            Some((body, _)) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

/// Translates the error of a body from an origin.
pub(crate) trait Blame {
    /// The kind of the error.
    fn kind(&self) -> Kind;
}

impl Blame for Interrupted {
    fn kind(&self) -> Kind {
        self.kind()
    }
}

impl Blame for BodyError {
    fn kind(&self) -> Kind {
        self.0
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answer was cut off: {}", self.0.reason())
    }
}

impl std::error::Error for BodyError {}

#[cfg(test)]
pub(super) mod testing {
    //! A body that a test feeds piece by piece.

    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    use super::*;

    pub(crate) type Feed = UnboundedSender<Result<Frame<Bytes>, BodyError>>;

    pub(crate) struct Fed {
        pieces: UnboundedReceiver<Result<Frame<Bytes>, BodyError>>,
        left: Option<u64>,
    }

    /// A body with this length, or with an unknown length. It ends when its feed is dropped.
    pub(crate) fn feed(length: Option<u64>) -> (Feed, Fed) {
        let (feed, pieces) = unbounded_channel();
        let left = length;
        (feed, Fed { pieces, left })
    }

    impl Body for Fed {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            let piece = ready!(self.pieces.poll_recv(cx));
            if let (Some(Ok(frame)), Some(left)) = (&piece, self.left) {
                let len = frame.data_ref().map_or(0, Bytes::len) as u64;
                self.left = Some(left - len);
            }
            Poll::Ready(piece)
        }

        fn is_end_stream(&self) -> bool {
            self.left == Some(0)
        }

        fn size_hint(&self) -> SizeHint {
            self.left.map_or(SizeHint::default(), SizeHint::with_exact)
        }
    }

    /// The next piece, within ten seconds.
    pub(crate) async fn next(
        body: &mut (impl Body<Data = Bytes, Error = BodyError> + Unpin),
    ) -> Option<Result<Bytes, Kind>> {
        let frame = core::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx));
        let frame = tokio::time::timeout(Duration::from_secs(10), frame).await;
        let frame = frame.expect("a piece in time")?;
        Some(match frame {
            Ok(frame) => Ok(frame.into_data().unwrap_or_default()),
            Err(error) => Err(error.0),
        })
    }

    /// The whole body, and how it ended.
    pub(crate) async fn all(
        mut body: impl Body<Data = Bytes, Error = BodyError> + Unpin,
    ) -> Result<Vec<u8>, Kind> {
        let mut bytes = Vec::new();
        while let Some(piece) = next(&mut body).await {
            bytes.extend_from_slice(&piece?);
        }
        Ok(bytes)
    }

    pub(crate) fn data(text: &str) -> Result<Frame<Bytes>, BodyError> {
        Ok(Frame::data(Bytes::copy_from_slice(text.as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::{testing::*, *};

    type Told = Arc<Mutex<Vec<(BodyEnd, u64)>>>;

    /// An answer that the test feeds, what it reported, and the resource that is held until the origin has finished.
    fn answer(length: Option<u64>, pace: BodyTimeouts) -> (Feed, ResponseBody, Told, Arc<()>) {
        let (feed, body) = feed(length);
        let held = Arc::new(());
        let told = Told::default();
        let heard = told.clone();
        let answer = ResponseBody::origin(Guarded::new(body, held.clone(), pace))
            .then(move |how, bytes| heard.lock().unwrap().push((how, bytes)));
        (feed, answer, told, held)
    }

    fn told(told: &Told) -> Vec<(BodyEnd, u64)> {
        told.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn the_guard_goes_with_the_last_byte() {
        let (feed, mut answer, heard, held) = answer(Some(6), BodyTimeouts::ANY);
        assert_eq!(answer.size_hint().exact(), Some(6));
        feed.send(data("abc")).unwrap();
        assert_eq!(next(&mut answer).await, Some(Ok("abc".into())));
        assert_eq!(Arc::strong_count(&held), 2);
        assert_eq!(answer.size_hint().exact(), Some(3));
        feed.send(data("def")).unwrap();
        assert_eq!(next(&mut answer).await, Some(Ok("def".into())));
        assert_eq!(Arc::strong_count(&held), 1);
        assert!(answer.is_end_stream());
        drop(answer);
        assert_eq!(told(&heard), [(BodyEnd::Whole, 6)]);
    }

    #[tokio::test]
    async fn without_a_length_the_end_is_asked_for() {
        let (feed, mut answer, heard, held) = answer(None, BodyTimeouts::ANY);
        feed.send(data("abc")).unwrap();
        assert_eq!(next(&mut answer).await, Some(Ok("abc".into())));
        drop(feed);
        assert_eq!(next(&mut answer).await, None);
        assert_eq!(Arc::strong_count(&held), 1);
        assert_eq!(told(&heard), [(BodyEnd::Whole, 3)]);
        drop(answer);
        assert_eq!(told(&heard).len(), 1);
    }

    #[tokio::test]
    async fn trailers_are_the_end() {
        let (feed, mut answer, heard, held) = answer(None, BodyTimeouts::ANY);
        feed.send(Ok(Frame::trailers(http::HeaderMap::new())))
            .unwrap();
        assert!(next(&mut answer).await.is_some());
        assert_eq!(Arc::strong_count(&held), 1);
        drop(answer);
        assert_eq!(told(&heard), [(BodyEnd::Whole, 0)]);
    }

    #[tokio::test]
    async fn a_caller_that_leaves_is_told_from_an_origin_that_stops() {
        let (feed, mut left, heard, held) = answer(Some(6), BodyTimeouts::ANY);
        feed.send(data("abc")).unwrap();
        next(&mut left).await;
        drop(left);
        assert_eq!(told(&heard), [(BodyEnd::Left, 3)]);
        assert_eq!(Arc::strong_count(&held), 1);

        let (feed, mut cut, heard, held) = answer(Some(6), BodyTimeouts::ANY);
        feed.send(data("abc")).unwrap();
        feed.send(Err(BodyError(Kind::Terminated))).unwrap();
        next(&mut cut).await;
        assert_eq!(next(&mut cut).await, Some(Err(Kind::Terminated)));
        assert_eq!(Arc::strong_count(&held), 1);
        drop(cut);
        assert_eq!(told(&heard), [(BodyEnd::Cut(Kind::Terminated), 3)]);
    }

    #[tokio::test]
    async fn a_piece_that_does_not_come_cuts() {
        let pace = BodyTimeouts {
            read_timeout: Duration::from_millis(20),
            ..BodyTimeouts::ANY
        };
        let (feed, mut answer, heard, held) = answer(Some(6), pace);
        feed.send(data("abc")).unwrap();
        next(&mut answer).await;
        assert_eq!(next(&mut answer).await, Some(Err(Kind::ResponseTimeout)));
        assert_eq!(Arc::strong_count(&held), 1);
        assert_eq!(told(&heard), [(BodyEnd::Cut(Kind::ResponseTimeout), 3)]);
    }

    #[tokio::test]
    async fn pieces_that_come_do_not_move_the_deadline() {
        let pace = BodyTimeouts {
            read_timeout: Duration::from_secs(5),
            deadline: clock::deadline(Duration::from_millis(50)),
            overdue: Kind::Deadline,
        };
        let (feed, mut answer, heard, _held) = answer(None, pace);
        let feeding = tokio::spawn(async move {
            while feed.send(data("x")).is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let cut = loop {
            if let Err(kind) = next(&mut answer).await.expect("no end") {
                break kind;
            }
        };
        assert_eq!(cut, Kind::Deadline);
        assert!(matches!(
            told(&heard)[..],
            [(BodyEnd::Cut(Kind::Deadline), 1..)]
        ));
        drop(answer);
        feeding.await.unwrap();
    }

    #[tokio::test]
    async fn what_has_no_bytes_is_whole_at_once() {
        let (_feed, answer, heard, held) = answer(Some(0), BodyTimeouts::ANY);
        assert_eq!(Arc::strong_count(&held), 1);
        assert!(answer.is_end_stream());
        drop(answer);
        assert_eq!(told(&heard), [(BodyEnd::Whole, 0)]);

        assert!(ResponseBody::bytes("").is_end_stream());
        assert_eq!(all(ResponseBody::bytes("page")).await, Ok(b"page".to_vec()));
    }
}
