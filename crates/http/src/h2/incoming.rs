//! The effect of each frame of a client (RFC 9113 §6).

use http::Version;

use super::{
    channel::{Channel, NO_SLOT},
    frames::{
        ACK, COMPRESSION_ERROR, CONTINUATION, DATA, ENABLE_PUSH, END_HEADERS, END_STREAM,
        FIRST_WINDOW, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, FrameHead, GOAWAY, HAS_PRIORITY,
        HEADER_TABLE_SIZE, HEADERS, INITIAL_WINDOW_SIZE, MAX_FRAME, MAX_FRAME_SIZE, MOST_WINDOW,
        NO_ERROR, PADDED, PING, PRIORITY, PRIORITY_UPDATE, PROTOCOL_ERROR, PUSH_PROMISE,
        REFUSED_STREAM, RST_STREAM, SETTINGS, STREAM_CLOSED, WINDOW_UPDATE, number, put,
    },
    protocol::{Arrived, EXPLAINED_BY_REQUEST, LEAVE, Partial, Protocol, Wrong, exceeded, wrong},
};
use crate::{
    Priority,
    multiplex::{
        head::{self, Building, Unfit},
        limits::{Kind, SMALL_DATA},
    },
};

impl Protocol {
    /// A frame has come.
    pub(super) fn frame(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Wrong> {
        self.count_frame(head);
        let is_expected = match &self.partial {
            Some(partial) => head.kind == CONTINUATION && head.stream == partial.stream,
            None => head.kind != CONTINUATION,
        };
        let is_first = !self.has_settings && (head.kind != SETTINGS || head.has(ACK));
        if !is_expected || is_first {
            return Err(wrong(PROTOCOL_ERROR));
        }
        let of_streams = match head.kind {
            DATA | HEADERS | PRIORITY | RST_STREAM | CONTINUATION => Some(true),
            SETTINGS | PING | GOAWAY | PRIORITY_UPDATE => Some(false),
            PUSH_PROMISE => return Err(wrong(PROTOCOL_ERROR)),
            _ => None,
        };
        if of_streams.is_some_and(|is| is != (head.stream != 0)) {
            return Err(wrong(PROTOCOL_ERROR));
        }
        match head.kind {
            DATA => self.data(head, payload),
            HEADERS => self.headers(head, payload),
            PRIORITY => self.priority(head, payload),
            RST_STREAM => self.rst_stream(head, payload),
            SETTINGS => self.settings(head, payload),
            PING => self.pinged(head, payload),
            GOAWAY if payload.len() < 8 => Err(wrong(FRAME_SIZE_ERROR)),
            WINDOW_UPDATE => self.window_update(head, payload),
            CONTINUATION => self.continuation(head, payload),
            PRIORITY_UPDATE => self.priority_update(payload),
            // Unknown frames are ignored, and a client that leaves may finish its running requests.
            _ => Ok(()),
        }
    }

    fn count_frame(&mut self, head: FrameHead) {
        let kind = match head.kind {
            DATA if head.length < SMALL_DATA as usize && !head.has(END_STREAM) => Kind::Small,
            HEADERS if head.has(END_HEADERS) => {
                self.explained = self.explained.saturating_add(EXPLAINED_BY_REQUEST);
                return;
            }
            SETTINGS if !head.has(ACK) => Kind::Settings,
            PING if !head.has(ACK) => Kind::Ping,
            WINDOW_UPDATE if self.explained > 0 => {
                self.explained -= 1;
                return;
            }
            // Whose it is, is known later.
            DATA | SETTINGS | PING | RST_STREAM => return,
            _ => Kind::Small,
        };
        self.count(kind);
    }

    fn data(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Wrong> {
        let data = unpadded(head, payload)?;
        // Padding counts, too.
        self.window -= payload.len() as i64;
        if self.window < 0 {
            return Err(wrong(FLOW_CONTROL_ERROR));
        }
        let Some(at) = self.find(head.stream) else {
            return self.on_closed(head.stream, STREAM_CLOSED);
        };
        if self.is_closed(at) {
            return self.on_closed(head.stream, STREAM_CLOSED);
        }
        let channel = &mut self.channels[at];
        if channel.is_whole {
            self.fail(at, STREAM_CLOSED);
            return Ok(());
        }
        let before = channel.body.len();
        let is_fit = channel.take(data, payload.len(), head.has(END_STREAM));
        self.held += channel.body.len() - before;
        if channel.window < -channel.tolerance {
            self.fail(at, FLOW_CONTROL_ERROR);
        } else if !is_fit {
            self.fail(at, PROTOCOL_ERROR);
        } else {
            self.wake(at);
        }
        Ok(())
    }

    /// Whether a side has reset the stream, although the carrier still has it.
    fn is_closed(&self, at: usize) -> bool {
        let channel = &self.channels[at];
        channel.is_reset || (channel.is_over && !channel.is_whole)
    }

    /// A frame has come for a stream that is not open.
    fn on_closed(&mut self, id: u32, code: u32) -> Result<(), Wrong> {
        if id > self.last || id.is_multiple_of(2) {
            return Err(wrong(PROTOCOL_ERROR));
        }
        // Frames of a stream that was reset, or that weir has refused, are ignored.
        let is_known = id > self.last_served || self.gone.contains(&id);
        if !is_known && code != NO_ERROR {
            self.reset_stream(id, code);
            self.count(Kind::Reset);
        }
        Ok(())
    }

    fn headers(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Wrong> {
        let mut block = unpadded(head, payload)?;
        let mut depends_on_itself = false;
        if head.has(HAS_PRIORITY) {
            let Some((priority, rest)) = block.split_first_chunk::<5>() else {
                return Err(wrong(FRAME_SIZE_ERROR));
            };
            depends_on_itself = parent(priority) == head.stream;
            block = rest;
        }
        let mut partial = Partial {
            stream: head.stream,
            is_last: head.has(END_STREAM),
            depends_on_itself,
            block: Vec::new(),
            frames: 1,
        };
        if head.has(END_HEADERS) {
            return self.head(&partial, block);
        }
        partial.block.extend_from_slice(block);
        self.partial = Some(partial);
        Ok(())
    }

    fn continuation(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Wrong> {
        let Some(mut partial) = self.partial.take() else {
            return Err(wrong(PROTOCOL_ERROR));
        };
        // A head that is too large is answered, if it is not much too large.
        let most = 2 * self.most() + MAX_FRAME;
        partial.frames += 1;
        let length = partial.block.len() + payload.len();
        if length > most || partial.frames > most / MAX_FRAME + MORE_FRAMES {
            return Err(exceeded("max_head (in CONTINUATION frames)"));
        }
        if self.must_not_grow(length) {
            return Err(exceeded("http2_memory (in CONTINUATION frames)"));
        }
        partial.block.extend_from_slice(payload);
        if head.has(END_HEADERS) {
            let block = std::mem::take(&mut partial.block);
            return self.head(&partial, &block);
        }
        self.partial = Some(partial);
        Ok(())
    }

    /// A head is whole: that of a request, or fields behind a body.
    fn head(&mut self, partial: &Partial, block: &[u8]) -> Result<(), Wrong> {
        let id = partial.stream;
        if let Some(at) = self.find(id) {
            return self.trailers(at, partial, block);
        }
        if id <= self.last {
            self.skip(block)?;
            return self.fields_on_closed(id);
        }
        if id.is_multiple_of(2) {
            return Err(wrong(PROTOCOL_ERROR));
        }
        self.last = id;
        if id > self.last_served {
            self.count(Kind::Small);
            return self.skip(block);
        }
        self.requests = self.requests.saturating_sub(1);
        let mut building = Building::new(Version::HTTP_2, &self.limits);
        let read = (self.decoder).decode(block, |name, value| building.field(name, value));
        let whole = building.finish();
        read.map_err(|_| wrong(COMPRESSION_ERROR))?;
        let missing = whole.as_ref().map_or(None, |(_, length)| *length);
        let is_short = partial.is_last && missing.is_some_and(|missing| missing > 0);
        let head = match whole {
            _ if partial.depends_on_itself || is_short => Err(PROTOCOL_ERROR),
            _ if self.open >= self.limits.streams => Err(REFUSED_STREAM),
            Err(Unfit::Malformed) => Err(PROTOCOL_ERROR),
            Err(Unfit::Refused(refused)) => Ok(Err(refused)),
            Ok((head, _)) if self.must_not_grow(head.fields.capacity()) => Err(REFUSED_STREAM),
            Ok(whole) => Ok(Ok(whole)),
        };
        match head {
            Err(code) => {
                self.reset_stream(id, code);
                self.count(Kind::Reset);
            }
            Ok(head) => {
                let memory = head.as_ref().map_or(0, |(head, _)| head.fields.capacity());
                self.begin(id, memory, partial.is_last, missing);
                self.arrived.push_back(Arrived { id, head });
            }
        }
        Ok(())
    }

    fn begin(&mut self, id: u32, memory: usize, is_whole: bool, missing: Option<u64>) {
        let window = self.limits.stream_window;
        // Until the client has acknowledged the settings, it may use the default window.
        let tolerance = match self.is_settled {
            true => 0,
            false => FIRST_WINDOW.saturating_sub(window),
        };
        self.open += 1;
        self.heads += memory;
        self.channels.push(Channel {
            id,
            slot: NO_SLOT,
            send_window: self.first_window,
            window: window.into(),
            tolerance: tolerance.into(),
            body: Vec::new(),
            missing,
            client: 0,
            head: memory,
            is_whole,
            is_over: false,
            is_reset: false,
            is_ignored: false,
        });
    }

    /// Reads fields that are not used, because later heads may refer to them.
    fn skip(&mut self, block: &[u8]) -> Result<(), Wrong> {
        let read = self.decoder.decode(block, |_, _| ());
        read.map_err(|_| wrong(COMPRESSION_ERROR))
    }

    /// Fields have come behind a body. Their content is not used.
    fn trailers(&mut self, at: usize, partial: &Partial, block: &[u8]) -> Result<(), Wrong> {
        let mut is_fit = partial.is_last && !partial.depends_on_itself;
        let read = self.decoder.decode(block, |name, value| {
            is_fit &= head::check(name, value).is_ok();
        });
        read.map_err(|_| wrong(COMPRESSION_ERROR))?;
        self.requests = self.requests.saturating_sub(1);
        if self.is_closed(at) {
            return self.fields_on_closed(partial.stream);
        }
        let channel = &mut self.channels[at];
        if std::mem::replace(&mut channel.is_whole, true) {
            self.fail(at, STREAM_CLOSED);
        } else if !is_fit || !channel.is_fit_to_end() {
            self.fail(at, PROTOCOL_ERROR);
        } else {
            self.wake(at);
        }
        Ok(())
    }

    /// Fields have come for a stream that is not open. If the client must know that, its connection ends (RFC 9113 §5.1).
    fn fields_on_closed(&self, id: u32) -> Result<(), Wrong> {
        match self.gone.contains(&id) {
            true => Ok(()),
            false => Err(wrong(STREAM_CLOSED)),
        }
    }

    fn priority(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Wrong> {
        // In RFC 9113 the frame has no meaning, but a fixed size.
        let code = match payload.first_chunk::<5>() {
            Some(priority) if payload.len() == 5 && parent(priority) != head.stream => {
                return Ok(());
            }
            Some(_) if payload.len() == 5 => PROTOCOL_ERROR,
            _ => FRAME_SIZE_ERROR,
        };
        match self.find(head.stream) {
            Some(at) => self.fail(at, code),
            None => {
                self.reset_stream(head.stream, code);
                self.count(Kind::Reset);
            }
        }
        Ok(())
    }

    fn rst_stream(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Wrong> {
        if payload.len() != 4 {
            return Err(wrong(FRAME_SIZE_ERROR));
        }
        // The client knows that the stream is closed: a further frame is an error.
        self.gone.retain(|gone| *gone != head.stream);
        let Some(at) = self.find(head.stream) else {
            self.count(Kind::Reset);
            return self.on_closed(head.stream, NO_ERROR);
        };
        self.count_reset_at(at);
        let channel = &mut self.channels[at];
        // A complete answer is still sent, even if the client does not have all of it yet.
        if channel.is_open() {
            self.open -= 1;
            channel.is_reset = true;
            self.drop_body(at);
            self.wake(at);
        }
        Ok(())
    }

    fn settings(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Wrong> {
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() || (head.has(ACK) && !payload.is_empty()) {
            return Err(wrong(FRAME_SIZE_ERROR));
        }
        if head.has(ACK) {
            self.is_settled = true;
            return Ok(());
        }
        let mut window = None;
        for [a, b, value @ ..] in settings {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*a, *b]) {
                HEADER_TABLE_SIZE => self.drops_table = true,
                ENABLE_PUSH if value > 1 => return Err(wrong(PROTOCOL_ERROR)),
                INITIAL_WINDOW_SIZE if value > MOST_WINDOW => {
                    return Err(wrong(FLOW_CONTROL_ERROR));
                }
                INITIAL_WINDOW_SIZE => window = Some(i64::from(value)),
                MAX_FRAME_SIZE if !(MAX_FRAME as u32..1 << 24).contains(&value) => {
                    return Err(wrong(PROTOCOL_ERROR));
                }
                // The other settings do not matter: weir pushes nothing, and its frames and heads are never longer than
                // the defaults allow.
                _ => {}
            }
        }
        if let Some(window) = window {
            let more = window - std::mem::replace(&mut self.first_window, window);
            for at in 0..self.channels.len() {
                if !self.channels[at].widen(more) {
                    return Err(wrong(FLOW_CONTROL_ERROR));
                }
                if more > 0 {
                    self.wake(at);
                }
            }
        }
        self.has_settings = true;
        put(self.out.bytes(), SETTINGS, ACK, 0, &[]);
        Ok(())
    }

    fn pinged(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Wrong> {
        if payload.len() != 8 {
            return Err(wrong(FRAME_SIZE_ERROR));
        }
        if !head.has(ACK) {
            put(self.out.bytes(), PING, ACK, 0, payload);
        } else if payload == LEAVE && !self.has_said_last() {
            self.say_last(NO_ERROR);
        }
        Ok(())
    }

    fn window_update(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Wrong> {
        let Ok(more) = payload.try_into() else {
            return Err(wrong(FRAME_SIZE_ERROR));
        };
        let more = i64::from(number(more));
        if head.stream == 0 {
            let was_closed = self.send_window <= 0;
            self.send_window += more;
            self.has_opened |= was_closed && self.send_window > 0;
            return match (more, self.send_window > i64::from(MOST_WINDOW)) {
                (0, _) => Err(wrong(PROTOCOL_ERROR)),
                (_, true) => Err(wrong(FLOW_CONTROL_ERROR)),
                _ => Ok(()),
            };
        }
        let Some(at) = self.find(head.stream) else {
            return self.on_closed(
                head.stream,
                if more == 0 { PROTOCOL_ERROR } else { NO_ERROR },
            );
        };
        let channel = &mut self.channels[at];
        if more == 0 {
            self.fail(at, PROTOCOL_ERROR);
        } else if !channel.widen(more) {
            self.fail(at, FLOW_CONTROL_ERROR);
        } else {
            self.wake(at);
        }
        Ok(())
    }

    fn priority_update(&mut self, payload: &[u8]) -> Result<(), Wrong> {
        let Some((id, field)) = payload.split_first_chunk() else {
            return Err(wrong(FRAME_SIZE_ERROR));
        };
        if field.len() <= MAX_UPDATE {
            self.priorities.push((number(id), Priority::of(field)));
        }
        Ok(())
    }
}

/// The payload without its padding (RFC 9113 §6.1, §6.2).
fn unpadded(head: FrameHead, payload: &[u8]) -> Result<&[u8], Wrong> {
    if !head.has(PADDED) {
        return Ok(payload);
    }
    let (padding, rest) = payload.split_first().ok_or(wrong(FRAME_SIZE_ERROR))?;
    let length = rest.len().checked_sub(usize::from(*padding));
    let length = length.ok_or(wrong(PROTOCOL_ERROR))?;
    Ok(&rest[..length])
}

/// The stream on which a stream depends (RFC 7540 §6.3).
fn parent(priority: &[u8; 5]) -> u32 {
    let [parent @ .., _] = priority;
    number(parent)
}

/// The longest field of a PRIORITY_UPDATE that is used, bytes. Usual ones have 8 bytes.
const MAX_UPDATE: usize = 124;

/// How many frames a head may have besides those that its size explains.
const MORE_FRAMES: usize = 8;

#[cfg(test)]
mod tests;
