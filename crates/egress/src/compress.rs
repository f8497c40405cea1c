//! Compresses answers for the caller, if the caller accepts it and the origin did not compress.
//!
//! Answers that the origin compressed, and everything that is not certainly text of some length, are passed on byte
//! for byte: weir never decodes or changes a coding, or adds a second one.
//!
//! When the origin pauses, everything that has arrived is compressed and passed on (the encoder is flushed) instead of
//! waiting for a full block. This costs a few bytes for an answer in many pieces, but nothing is delayed. The levels
//! are chosen so that compressing is not slower than the network.

use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body::{Body, Frame};
use weir_http::compress::{Effort, Encoder, Failed, Op};
use weir_semantics::{
    coding::{Accepted, Coding},
    compression::{self, SMALLEST, TEXT_TYPES, UNCHANGEABLE},
};

use super::{
    body::{BodyError, ResponseBody, Source},
    fault::Kind,
};

/// The codings that a caller accepts, read before the request goes to the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wish {
    accepted: Accepted,
    /// The answer will be complete and have a body, and nothing forbids changing it.
    transformable: bool,
}

impl Wish {
    /// Reads the request.
    pub(crate) fn of(method: &Method, headers: &HeaderMap) -> Wish {
        let accept = headers.get_all(header::ACCEPT_ENCODING).iter();
        Wish {
            accepted: Accepted::of(accept.map(HeaderValue::as_bytes)),
            transformable: *method != Method::HEAD
                && *method != Method::CONNECT
                && !headers.contains_key(header::RANGE)
                && !no_transform(headers),
        }
    }
}

/// Compresses the answer if both sides allow it. Hop-by-hop headers were removed before.
pub(crate) fn to_caller(wish: Wish, answer: Response<ResponseBody>) -> Response<ResponseBody> {
    if !wish.transformable || !is_worth_it(&answer) {
        return answer;
    }
    let (mut head, body) = answer.into_parts();
    // Also if this caller gets it uncompressed: the answer depends on what the caller accepts.
    vary(&mut head.headers);
    let coding = wish.accepted.choose(ORDER, |_| true);
    let encoder = |coding| Encoder::new(coding, Effort::Answer, None).ok();
    let Some((coding, encoder)) = coding.and_then(|coding| Some((coding, encoder(coding)?))) else {
        return Response::from_parts(head, body);
    };
    let name = HeaderValue::from_static(coding.name());
    head.headers.insert(header::CONTENT_ENCODING, name);
    head.headers.remove(header::CONTENT_LENGTH);
    // Ranges would refer to the origin's bytes.
    head.headers.remove(header::ACCEPT_RANGES);
    weaken(&mut head.headers);
    let compressed = Compressed::new(body.into_source(), encoder);
    let body = ResponseBody::new(Source::Compressed(Box::new(compressed)));
    Response::from_parts(head, body)
}

/// A body that is compressed while it is passed on.
pub(super) struct Compressed {
    source: Source,
    encoder: Encoder,
    output: Vec<u8>,
    /// Bytes that have arrived and are not compressed yet.
    input: Bytes,
    /// The encoder has unflushed data.
    unflushed: bool,
    /// Sent after the last byte.
    trailers: Option<HeaderMap>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// The source has ended.
    Ending,
    /// The encoder has ended.
    Ended,
}

impl Compressed {
    fn new(source: Source, encoder: Encoder) -> Compressed {
        Compressed {
            source,
            encoder,
            output: Vec::new(),
            input: Bytes::new(),
            unflushed: false,
            trailers: None,
            state: State::Running,
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.state == State::Ended && self.trailers.is_none()
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(self.poll(cx));
        if let Some(Err(_)) = frame {
            self.state = State::Ended;
            self.source = Source::Empty;
        }
        Poll::Ready(frame)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut slices = 0;
        loop {
            if !self.input.is_empty() {
                if slices == SLICES {
                    // Lets other calls on this thread run.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                slices += 1;
                let len = self.input.len().min(SLICE);
                let slice = &self.input[..len];
                (self.encoder).encode(slice, Op::Continue, &mut self.output)?;
                self.input.advance(len);
                self.unflushed = true;
                if self.output.len() >= PIECE {
                    return Poll::Ready(self.take());
                }
                continue;
            }
            match self.state {
                State::Running => {}
                State::Ending => {
                    self.encoder.encode(b"", Op::Finish, &mut self.output)?;
                    self.state = State::Ended;
                    return Poll::Ready(self.take());
                }
                State::Ended => {
                    let trailers = self.trailers.take();
                    return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
                }
            }
            match self.source.poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    match frame.into_data() {
                        Ok(data) => self.input = data,
                        Err(frame) => {
                            self.trailers = frame.into_trailers().ok();
                            self.state = State::Ending;
                        }
                    }
                    if self.source.is_end_stream() {
                        self.state = State::Ending;
                    }
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => self.state = State::Ending,
                Poll::Pending => {
                    if std::mem::take(&mut self.unflushed) {
                        self.encoder.encode(b"", Op::Flush, &mut self.output)?;
                    }
                    return match self.take() {
                        Some(frame) => Poll::Ready(Some(frame)),
                        None => Poll::Pending,
                    };
                }
            }
        }
    }

    /// Takes the encoder's output.
    fn take(&mut self) -> Option<Result<Frame<Bytes>, BodyError>> {
        let output = std::mem::take(&mut self.output);
        (!output.is_empty()).then(|| Ok(Frame::data(output.into())))
    }
}

impl From<Failed> for BodyError {
    fn from(_: Failed) -> BodyError {
        BodyError(Kind::Internal)
    }
}

/// Whether an answer becomes smaller by compression and stays correct.
fn is_worth_it(answer: &Response<ResponseBody>) -> bool {
    let headers = answer.headers();
    let status = answer.status();
    let with_all_bytes = status.is_success()
        && status != StatusCode::PARTIAL_CONTENT
        && status != StatusCode::IM_USED;
    let length = answer.body().size_hint().exact();
    with_all_bytes
        && !answer.body().is_end_stream()
        && length.is_none_or(|length| length >= SMALLEST)
        && !UNCHANGEABLE.iter().any(|name| headers.contains_key(*name))
        && !no_transform(headers)
        && headers.get(header::CONTENT_TYPE).is_some_and(is_text)
}

/// RFC 9111 §5.2.1.6 and §5.2.2.6.
fn no_transform(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CACHE_CONTROL).iter();
    compression::is_no_transform(values.map(HeaderValue::as_bytes))
}

/// Whether data of that type usually becomes much smaller. For files, somebody has put a compressed file beside the
/// original; here an unknown type is not compressed. For event streams compression is not worth the delay.
fn is_text(content_type: &HeaderValue) -> bool {
    let content_type = content_type.as_bytes();
    compression::is_listed(content_type, TEXT_TYPES.into_iter())
        && !compression::is_listed(content_type, ["text/event-stream"].into_iter())
}

/// Notes in the answer that it depends on what the caller accepts (RFC 9110 §12.5.5).
fn vary(headers: &mut HeaderMap) {
    let values = headers.get_all(header::VARY).iter();
    if !compression::varies_by_coding(values.map(HeaderValue::as_bytes)) {
        headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
}

/// The bytes differ from the origin's, but the meaning is the same, so the tag becomes weak (RFC 9110 §8.8.1).
fn weaken(headers: &mut HeaderMap) {
    let tag = headers.get(header::ETAG).map(HeaderValue::as_bytes);
    if let Some(weak) = tag.and_then(compression::weak_tag)
        && let Ok(weak) = HeaderValue::from_bytes(&weak)
    {
        headers.insert(header::ETAG, weak);
    }
}

/// If a caller accepts several equally, the first is used: zstd needs the least CPU for its effect.
const ORDER: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

/// How many bytes are compressed at a time, and how often before other tasks run: about a millisecond.
const SLICE: usize = 16 << 10;
const SLICES: u32 = 4;

/// This many bytes are passed on even if more input is available.
const PIECE: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use std::{io::Read, pin::Pin};

    use super::{
        super::body::{BodyTimeouts, Guarded, testing::*},
        *,
    };

    fn wish(accept: &str) -> Wish {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, accept.parse().unwrap());
        Wish::of(&Method::GET, &headers)
    }

    /// A 200 with JSON of this length, and these headers.
    fn answer(length: usize, headers: &[(&'static str, &str)]) -> Response<ResponseBody> {
        let body = "{\"key\": \"value\"}, ".repeat(length / 18 + 1)[..length].to_owned();
        let mut answer = Response::new(ResponseBody::bytes(body));
        let set = answer.headers_mut();
        set.insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
        set.insert(header::CONTENT_LENGTH, length.into());
        set.insert(header::ETAG, "\"tag\"".parse().unwrap());
        for (name, value) in headers {
            set.insert(*name, value.parse().unwrap());
        }
        answer
    }

    fn coding(answer: &Response<ResponseBody>) -> Option<&str> {
        let coding = answer.headers().get(header::CONTENT_ENCODING)?;
        Some(coding.to_str().unwrap())
    }

    fn original(coding: &str, bytes: &[u8]) -> Vec<u8> {
        let mut original = Vec::new();
        let read = match coding {
            "gzip" => flate2::read::GzDecoder::new(bytes).read_to_end(&mut original),
            "br" => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut original),
            _ => {
                original.reserve(2_000_000);
                let size = zstd_safe::decompress(&mut original, bytes).expect("a whole frame");
                Ok(size)
            }
        };
        read.expect("a whole stream");
        original
    }

    #[tokio::test]
    async fn what_is_compressed_is_what_was_sent() {
        for accept in ["gzip", "br", "zstd"] {
            for length in [1024, 20_000, 1_000_000] {
                let sent = all(answer(length, &[]).into_body()).await.unwrap();
                let compressed = to_caller(wish(accept), answer(length, &[]));
                assert_eq!(coding(&compressed), Some(accept));
                let headers = compressed.headers();
                assert!(!headers.contains_key(header::CONTENT_LENGTH));
                assert_eq!(headers[header::ETAG], "W/\"tag\"");
                assert_eq!(headers[header::VARY], "Accept-Encoding");
                assert_eq!(compressed.body().size_hint().exact(), None);
                let bytes = all(compressed.into_body()).await.unwrap();
                assert!(bytes.len() < length / 5, "{accept}: {} bytes", bytes.len());
                assert_eq!(original(accept, &bytes), sent);
            }
        }
    }

    #[test]
    fn the_caller_decides_which() {
        for (accept, expected) in [
            ("gzip, deflate, br, zstd", Some("zstd")),
            ("gzip, br", Some("br")),
            ("gzip;q=1.0, br;q=0.5", Some("gzip")),
            ("deflate", None),
            ("identity, gzip;q=0.5", None),
            ("*", Some("zstd")),
            ("gzip;q=0", None),
        ] {
            let answer = to_caller(wish(accept), answer(2000, &[]));
            assert_eq!(coding(&answer), expected, "{accept}");
            assert_eq!(answer.headers()[header::VARY], "Accept-Encoding");
        }
    }

    #[tokio::test]
    async fn what_is_not_certain_is_left_alone() {
        for headers in [
            &[("content-encoding", "br")][..],
            &[("content-encoding", "identity")],
            &[("content-type", "image/png")],
            &[("content-type", "text/event-stream")],
            &[("content-type", "application/x-unheard-of")],
            &[("cache-control", "max-age=5, No-Transform")],
            &[("content-range", "bytes 0-1/2")],
            &[("content-digest", "sha-256=:AA==:")],
        ] {
            let untouched = answer(2000, headers);
            let before = untouched.headers().clone();
            let after = to_caller(wish("gzip"), untouched);
            assert_eq!(*after.headers(), before);
            assert_eq!(after.into_body().size_hint().exact(), Some(2000));
        }
        for status in [206, 226, 304, 404, 500] {
            let mut untouched = answer(2000, &[]);
            *untouched.status_mut() = StatusCode::from_u16(status).unwrap();
            assert_eq!(coding(&to_caller(wish("gzip"), untouched)), None);
        }
        assert_eq!(coding(&to_caller(wish("gzip"), answer(1023, &[]))), None);
    }

    #[test]
    fn requests_that_want_bytes_as_they_are() {
        for (method, name, value) in [
            (Method::HEAD, "accept", "*/*"),
            (Method::GET, "range", "bytes=0-1"),
            (Method::GET, "cache-control", "no-transform"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, "gzip".parse().unwrap());
            headers.insert(name, value.parse().unwrap());
            let wish = Wish::of(&method, &headers);
            assert_eq!(coding(&to_caller(wish, answer(2000, &[]))), None);
        }
    }

    #[test]
    fn what_an_answer_varies_by_is_said_once() {
        for (before, after) in [
            ("*", "*"),
            ("Origin, accept-encoding", "Origin, accept-encoding"),
        ] {
            let answer = to_caller(wish("gzip"), answer(2000, &[("vary", before)]));
            assert_eq!(answer.headers()[header::VARY], after);
            assert_eq!(answer.headers().get_all(header::VARY).iter().count(), 1);
        }
        let answer = to_caller(wish("gzip"), answer(2000, &[("vary", "Origin")]));
        assert_eq!(answer.headers().get_all(header::VARY).iter().count(), 2);
    }

    #[test]
    fn what_a_directive_quotes_is_no_directive() {
        let headers = [("cache-control", "private=\"cookie, no-transform, x\"")];
        let answer = to_caller(wish("gzip"), answer(2000, &headers));
        assert_eq!(coding(&answer), Some("gzip"));
    }

    #[test]
    fn types_that_are_text() {
        let is = |media: &'static str| is_text(&HeaderValue::from_static(media));
        assert!(is("text/css; charset=utf-8") && is("image/svg+xml") && is("Application/JSON"));
        assert!(is("application/problem+json") && is("application/wasm"));
        assert!(!is("image/png") && !is("video/mp4") && !is("application/octet-stream"));
        assert!(!is("") && !is("text/event-stream;x=y"));
    }

    /// A stream that is compressed while the test feeds it.
    fn fed(accept: &str) -> (Feed, ResponseBody) {
        let (feed, body) = feed(None);
        let mut answer = answer(0, &[]);
        answer.headers_mut().remove(header::CONTENT_LENGTH);
        *answer.body_mut() = ResponseBody::origin(Guarded::new(body, (), BodyTimeouts::ANY));
        let compressed = to_caller(wish(accept), answer);
        assert_eq!(coding(&compressed), Some(accept));
        (feed, compressed.into_body())
    }

    #[tokio::test]
    async fn a_slow_stream_does_not_wait() {
        for accept in ["gzip", "br", "zstd"] {
            let (feed, mut body) = fed(accept);
            let mut bytes = Vec::new();
            for text in ["one ", "two ", "three "] {
                feed.send(data(text)).unwrap();
                // It arrives although nothing follows yet.
                bytes.extend(next(&mut body).await.unwrap().unwrap());
            }
            drop(feed);
            bytes.extend(all(body).await.unwrap());
            assert_eq!(original(accept, &bytes), b"one two three ");
        }
    }

    #[tokio::test]
    async fn half_an_answer_is_no_whole_stream() {
        let (feed, body) = fed("gzip");
        feed.send(data("half")).unwrap();
        feed.send(Err(BodyError(Kind::Terminated))).unwrap();
        assert_eq!(all(body).await, Err(Kind::Terminated));
    }

    #[tokio::test]
    async fn trailers_come_behind_the_last_byte() {
        let (feed, mut body) = fed("gzip");
        feed.send(data("all of it")).unwrap();
        feed.send(Ok(Frame::trailers(HeaderMap::new()))).unwrap();
        let mut bytes = Vec::new();
        loop {
            let frame = core::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
            match frame.await.unwrap().unwrap().into_data() {
                Ok(data) => bytes.extend(data),
                Err(frame) => break assert!(frame.is_trailers()),
            }
        }
        assert!(body.is_end_stream());
        assert_eq!(original("gzip", &bytes), b"all of it");
    }
}
