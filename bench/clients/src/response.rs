//! Reads an HTTP/1.1 response from the bytes that have come so far (RFC 9112 §6).
//!
//! It reads only what a client of this benchmark needs: the status, the bytes of the body, where they end, and whether
//! the connection stays open. It does not use sockets.

/// A longer head is refused: no server of the benchmark sends one.
const MAX_HEAD: usize = 64 * 1024;
/// The longest line that announces a chunk.
const MAX_CHUNK_LINE: usize = 1024;

/// The state of a response after the bytes so far.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More bytes are needed.
    Partial,
    /// The response is complete.
    Whole,
}

/// Why the bytes are not a valid response.
pub(crate) type Malformed = &'static str;

/// One response, read piece by piece.
#[derive(Debug, Default)]
pub(crate) struct Response {
    /// 0 until the head is complete.
    pub(crate) status: u16,
    /// The body without its framing.
    pub(crate) body: Vec<u8>,
    /// Whether the server keeps the connection.
    pub(crate) keep: bool,
    input: Vec<u8>,
    state: State,
}

#[derive(Debug, Default, Clone, Copy)]
enum State {
    #[default]
    Head,
    Length(usize),
    ChunkLine,
    Chunk(usize),
    ChunkEnd,
    Trailer,
    UntilClose,
    Whole,
}

impl Response {
    /// Prepares for the next response; the buffers keep their capacity.
    pub(crate) fn reset(&mut self) {
        self.status = 0;
        self.body.clear();
        self.input.clear();
        self.state = State::Head;
    }

    /// Whether any byte of the response has come.
    pub(crate) fn has_begun(&self) -> bool {
        self.status != 0 || !self.input.is_empty()
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// What is wrong with them. Bytes after the end of a response are an error too, because no request was sent for
    /// them.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Progress, Malformed> {
        let mut input = std::mem::take(&mut self.input);
        let result = if input.is_empty() {
            // Most responses come in one piece: then they are not copied first.
            let used = self.parse(bytes);
            used.map(|used| input.extend_from_slice(&bytes[used..]))
        } else {
            input.extend_from_slice(bytes);
            let used = self.parse(&input);
            used.map(|used| drop(input.drain(..used)))
        };
        self.input = input;
        result?;
        match self.state {
            State::Whole if self.input.is_empty() => Ok(Progress::Whole),
            State::Whole => Err("bytes after the end"),
            _ => Ok(Progress::Partial),
        }
    }

    /// The end of the stream. It is also the end of the response if nothing else marks the end.
    pub(crate) fn end_of_stream(&self) -> Progress {
        match self.state {
            State::UntilClose => Progress::Whole,
            _ => Progress::Partial,
        }
    }

    /// Parses as far as possible. Returns the number of used bytes.
    fn parse(&mut self, input: &[u8]) -> Result<usize, Malformed> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match self.state {
                State::Head => match memchr::memmem::find(rest, b"\r\n\r\n") {
                    Some(end) => {
                        self.head(&rest[..end + 2])?;
                        at += end + 4;
                    }
                    None if rest.len() > MAX_HEAD => return Err("head too large"),
                    None => return Ok(at),
                },
                State::Length(left) => {
                    let count = left.min(rest.len());
                    self.body.extend_from_slice(&rest[..count]);
                    at += count;
                    if count < left {
                        self.state = State::Length(left - count);
                        return Ok(at);
                    }
                    self.state = State::Whole;
                }
                State::ChunkLine => {
                    let Some(line) = line(rest)? else {
                        return Ok(at);
                    };
                    at += line.len() + 2;
                    self.state = match chunk_size(line)? {
                        0 => State::Trailer,
                        size => State::Chunk(size),
                    };
                }
                State::Chunk(left) => {
                    let count = left.min(rest.len());
                    self.body.extend_from_slice(&rest[..count]);
                    at += count;
                    if count < left {
                        self.state = State::Chunk(left - count);
                        return Ok(at);
                    }
                    self.state = State::ChunkEnd;
                }
                State::ChunkEnd => {
                    if rest.len() < 2 {
                        return Ok(at);
                    }
                    if !rest.starts_with(b"\r\n") {
                        return Err("a chunk is longer than it says");
                    }
                    at += 2;
                    self.state = State::ChunkLine;
                }
                State::Trailer => {
                    let Some(line) = line(rest)? else {
                        return Ok(at);
                    };
                    at += line.len() + 2;
                    if line.is_empty() {
                        self.state = State::Whole;
                    }
                }
                State::UntilClose => {
                    self.body.extend_from_slice(rest);
                    return Ok(input.len());
                }
                State::Whole => return Ok(at),
            }
        }
    }

    /// The head with the end of its last line.
    fn head(&mut self, head: &[u8]) -> Result<(), Malformed> {
        let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let first = lines.next().unwrap_or_default();
        let old = first.starts_with(b"HTTP/1.0 ");
        if !old && !first.starts_with(b"HTTP/1.1 ") {
            return Err("not HTTP");
        }
        let status = first.get(9..12).and_then(number).ok_or("no status")?;
        if (100..200).contains(&status) {
            // The final response comes after it (RFC 9110 §15.2).
            return Ok(());
        }
        let (mut length, mut chunked, mut keep) = (None, false, !old);
        for line in lines {
            let Some(colon) = memchr::memchr(b':', line) else {
                continue;
            };
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            if name.eq_ignore_ascii_case(b"content-length") {
                length = Some(number(value).ok_or("a wrong Content-Length")?);
            } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
                chunked = value.eq_ignore_ascii_case(b"chunked");
            } else if name.eq_ignore_ascii_case(b"connection") {
                keep = if old {
                    value.eq_ignore_ascii_case(b"keep-alive")
                } else {
                    !value.eq_ignore_ascii_case(b"close")
                };
            }
        }
        self.status = u16::try_from(status).map_err(|_| "no status")?;
        self.state = match length {
            _ if matches!(status, 204 | 304) => State::Whole,
            _ if chunked => State::ChunkLine,
            Some(length) => State::Length(length),
            None => State::UntilClose,
        };
        self.keep = keep && !matches!(self.state, State::UntilClose);
        Ok(())
    }
}

/// The first line of `input`, without its end. `None` while it is incomplete.
fn line(input: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    match memchr::memmem::find(input, b"\r\n") {
        Some(end) => Ok(Some(&input[..end])),
        None if input.len() > MAX_CHUNK_LINE => Err("a chunk's line is too long"),
        None => Ok(None),
    }
}

fn chunk_size(line: &[u8]) -> Result<usize, Malformed> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let text = std::str::from_utf8(digits.trim_ascii()).map_err(|_| "a wrong chunk size")?;
    usize::from_str_radix(text, 16).map_err(|_| "a wrong chunk size")
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds `bytes` in pieces that end at `cuts`.
    fn read(bytes: &[u8], cuts: &[usize]) -> Result<(Progress, Response), Malformed> {
        let mut response = Response::default();
        let mut progress = Progress::Partial;
        let mut at = 0;
        for cut in cuts.iter().copied().chain([bytes.len()]) {
            let cut = cut.clamp(at, bytes.len());
            if cut > at {
                progress = response.take(&bytes[at..cut])?;
            }
            at = cut;
        }
        Ok((progress, response))
    }

    #[test]
    fn a_response_of_known_length() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        let (progress, response) = read(bytes, &[]).unwrap();
        assert_eq!(progress, Progress::Whole);
        assert_eq!((response.status, response.keep), (200, true));
        assert_eq!(response.body, b"hello");
        assert!(read(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello!", &[]).is_err());
    }

    #[test]
    fn a_response_that_ends_with_its_connection() {
        let (progress, response) = read(b"HTTP/1.0 200 OK\r\n\r\nhel", &[]).unwrap();
        assert_eq!(progress, Progress::Partial);
        assert_eq!(response.end_of_stream(), Progress::Whole);
        assert!(!response.keep);
        let (_, cut) = read(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", &[]).unwrap();
        assert_eq!(cut.end_of_stream(), Progress::Partial);
    }

    #[test]
    fn a_response_without_a_body_and_one_after_an_interim_one() {
        let bytes =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n";
        let (progress, response) = read(bytes, &[]).unwrap();
        assert_eq!((progress, response.status), (Progress::Whole, 304));
        assert!(!response.keep);
    }

    proptest! {
        /// The result does not depend on how the network cuts the response.
        #[test]
        fn pieces_make_no_difference(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..5),
            mut cuts in prop::collection::vec(0usize..1500, 0..12),
        ) {
            let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            for chunk in &chunks {
                bytes.extend(format!("{:x};x=y\r\n", chunk.len()).bytes());
                bytes.extend(chunk);
                bytes.extend(b"\r\n");
            }
            bytes.extend(b"0\r\nTrailer: 1\r\n\r\n");
            cuts.sort_unstable();
            let (progress, response) = read(&bytes, &cuts).unwrap();
            prop_assert_eq!(progress, Progress::Whole);
            prop_assert_eq!(response.body, chunks.concat());
            // The response is not complete before its last byte.
            let (progress, _) = read(&bytes[..bytes.len() - 1], &cuts).unwrap();
            prop_assert_eq!(progress, Progress::Partial);
        }

        /// Any bytes give an answer or an error, and no panic.
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..2000), cut in 0usize..2000) {
            let _ = read(&bytes, &[cut]);
            let mut framed = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            framed.extend(bytes);
            let _ = read(&framed, &[cut]);
        }
    }
}
