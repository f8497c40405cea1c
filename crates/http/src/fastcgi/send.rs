//! Sends an answer in records: the head and the first bytes in one of them, files from the page cache.

use std::task::{Context, Poll, ready};

use http::StatusCode;
use weir_fcgi::{MAX_CONTENT, server};
use weir_http1::Name;
use weir_net::FilePart;

use super::{Ending, io::Io};
use crate::{Answer, BodyEnd, BodyParts, ConnState, Fields, Part, Receipt};

/// An answer that is being sent.
pub(super) struct Sending<R> {
    /// Until it was put into the output buffer.
    head: Option<(StatusCode, Fields)>,
    parts: BodyParts,
    file: Option<FileRecords>,
    /// The buffer is written to the kernel before more of the body is taken. Once that has ended, END_REQUEST is in the buffer, unless it
    /// was truncated.
    is_flushing: bool,
    /// The connection stays open.
    pub(super) keep: bool,
    /// `None`: there is no answer, the request only ends.
    pub(super) receipt: Option<R>,
}

/// A part of a file that is being sent.
struct FileRecords {
    file: FilePart,
    /// Bytes of the file that are missing in the record whose header was put into the output buffer.
    in_record: u64,
}

/// Why an answer was not sent.
pub(super) enum Cut {
    /// The body ended too early.
    Truncated,
    /// So does the connection.
    Ended(Ending),
}

impl<R: Receipt> Sending<R> {
    pub(super) fn new(answer: Answer<R>) -> Sending<R> {
        // The web server compares what it gets with a length that the head has announced.
        let length = answer.body.len();
        Sending {
            head: Some((answer.status, answer.headers)),
            parts: BodyParts::new(answer.body, length),
            keep: answer.keep,
            receipt: Some(answer.receipt),
            ..Sending::none()
        }
    }

    /// Only the end of the request.
    pub(super) fn none() -> Sending<R> {
        Sending {
            head: None,
            parts: BodyParts::none(),
            file: None,
            is_flushing: false,
            keep: true,
            receipt: None,
        }
    }

    /// Whether the end of the request is in the output buffer.
    pub(super) fn is_ended(&self) -> bool {
        self.parts.end() == Some(BodyEnd::Whole)
    }

    /// Whether a record was begun whose content is not in the output buffer.
    pub(super) fn is_within_record(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.in_record > 0)
    }

    /// Sends until the kernel has all of the answer.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut Io,
        state: &ConnState,
    ) -> Poll<Result<(), Cut>> {
        loop {
            if let Some(file) = &mut self.file {
                if file.is_sent(io) {
                    self.file = None;
                    continue;
                }
                let sent = ready!(io.poll_send_file(cx, state, &mut file.file, file.in_record));
                let sent = sent.map_err(Cut::Ended)?;
                file.in_record -= sent;
                self.count(sent);
                continue;
            }
            if self.is_flushing {
                ready!(io.poll_flush(cx, state)).map_err(Cut::Ended)?;
                match self.parts.end() {
                    Some(BodyEnd::Whole) => return Poll::Ready(Ok(())),
                    Some(BodyEnd::Truncated) => return Poll::Ready(Err(Cut::Truncated)),
                    None => self.is_flushing = false,
                }
            }
            match self.parts.poll_next(cx) {
                Poll::Pending => {
                    self.put(io, &[]);
                    return match io.poll_flush(cx, state) {
                        Poll::Ready(Err(ending)) => Poll::Ready(Err(Cut::Ended(ending))),
                        Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
                    };
                }
                Poll::Ready(Some(Part::Bytes(bytes))) => {
                    self.put(io, &bytes);
                    // The end of the request goes along with the last bytes.
                    self.is_flushing = !self.parts.is_all_taken();
                }
                Poll::Ready(Some(Part::File(file))) => {
                    self.put(io, &[]);
                    self.file = Some(FileRecords { file, in_record: 0 });
                }
                // CGI has none.
                Poll::Ready(Some(Part::Trailers(_))) => {}
                Poll::Ready(None) if self.parts.end() == Some(BodyEnd::Truncated) => {
                    if let Some(receipt) = &mut self.receipt {
                        receipt.truncated();
                    }
                    if self.head.take().is_some() {
                        // Nothing was sent: the web server answers instead, as if a child of PHP-FPM had died.
                        return Poll::Ready(Err(Cut::Truncated));
                    }
                    self.put(io, &[]);
                    self.is_flushing = true;
                }
                Poll::Ready(None) => {
                    self.put(io, &[]);
                    self.keep = io.end_request(self.keep);
                    self.is_flushing = true;
                }
            }
        }
    }

    /// Puts the head, if that was not done, and the next bytes of the body into the output buffer, and behind them
    /// what the script has written to its standard error: nginx counts earlier bytes against its buffer for the head.
    fn put(&mut self, io: &mut Io, bytes: &[u8]) {
        let id = io.id();
        let out = io.out();
        match self.head.take() {
            Some((status, fields)) => {
                let header_at = out.len();
                out.extend_from_slice(&server::stdout_header(id, 0));
                let content_at = out.len();
                put_head(out, status, &fields);
                let head_len = out.len() - content_at;
                if head_len + bytes.len() <= MAX_CONTENT {
                    out.extend_from_slice(bytes);
                    let header = server::stdout_header(id, (head_len + bytes.len()) as u16);
                    out[header_at..content_at].copy_from_slice(&header);
                } else {
                    let head = out.split_off(content_at);
                    out.truncate(header_at);
                    server::stdout(out, id, &head);
                    server::stdout(out, id, bytes);
                }
            }
            None => server::stdout(out, id, bytes),
        }
        self.count(bytes.len() as u64);
        let stderr = self.receipt.as_mut().and_then(R::stderr);
        if let Some(stderr) = stderr {
            server::stderr(io.out(), id, &stderr);
        }
    }

    fn count(&mut self, bytes: u64) {
        if let Some(receipt) = &mut self.receipt {
            receipt.count(bytes);
        }
    }
}

impl FileRecords {
    /// Whether all of it was sent. If not, there is a record that is not sent.
    fn is_sent(&mut self, io: &mut Io) -> bool {
        if self.in_record == 0 && self.file.len() > 0 {
            self.in_record = self.file.len().min(MAX_CONTENT as u64);
            let header = server::stdout_header(io.id(), self.in_record as u16);
            io.out().extend_from_slice(&header);
        }
        self.in_record == 0
    }
}

/// A head as a script writes it (RFC 3875 §6.2). A script's own head is whole ([`Fields::of_script`]).
fn put_head(out: &mut Vec<u8>, status: StatusCode, fields: &Fields) {
    if fields.has(Name::Status) {
        out.extend_from_slice(fields.lines());
        return;
    }
    if status != StatusCode::OK {
        let phrase = status.canonical_reason().unwrap_or("Error");
        out.extend_from_slice(b"Status: ");
        out.extend_from_slice(status.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(phrase.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(fields.lines());
    out.extend_from_slice(b"\r\n");
}
