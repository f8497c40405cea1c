//! The protocol's data of each stream: its windows, and the parts of its request that have arrived.

use super::frames::MOST_WINDOW;

/// A stream that is open, or that the carrier still has.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) id: u32,
    /// Where the carrier has it; [`NO_SLOT`]: nowhere yet.
    pub(super) slot: u32,
    /// How many bytes weir may send.
    pub(super) send_window: i64,
    /// How many bytes the client may send, and how many more because it may not know of a change yet.
    pub(super) window: i64,
    pub(super) tolerance: i64,
    /// Received bytes of the body that were not taken yet.
    pub(super) body: Vec<u8>,
    /// Bytes that are missing of a body whose length is known.
    pub(super) missing: Option<u64>,
    /// The client that has sent the request, if a proxy names it; 0: the connection's client.
    pub(super) client: u64,
    /// Memory of its head, bytes.
    pub(super) head: usize,
    /// The client has ended its side.
    pub(super) is_whole: bool,
    /// weir has ended its side.
    pub(super) is_over: bool,
    /// A side has reset it.
    pub(super) is_reset: bool,
    /// Nobody reads the rest of the body.
    pub(super) is_ignored: bool,
}

impl Channel {
    /// Whether it counts as one of the streams that the client may have at once.
    pub(super) fn is_open(&self) -> bool {
        !self.is_over && !self.is_reset
    }

    /// Takes a part of the body. `length`: of the frame. False: it is longer than the head said.
    pub(super) fn take(&mut self, data: &[u8], length: usize, is_last: bool) -> bool {
        self.window -= length as i64;
        self.is_whole = is_last;
        if let Some(missing) = &mut self.missing {
            let Some(left) = missing.checked_sub(data.len() as u64) else {
                return false;
            };
            *missing = left;
        }
        if !self.is_ignored {
            // `Vec` itself would take twice the space.
            let room = self.body.capacity() - self.body.len();
            if room < data.len() {
                self.body.reserve_exact(data.len().max(self.body.len() / 4));
            }
            self.body.extend_from_slice(data);
        }
        self.is_fit_to_end()
    }

    /// Whether the body has the length that the head said, if it is whole.
    pub(super) fn is_fit_to_end(&self) -> bool {
        !self.is_whole || self.missing.unwrap_or(0) == 0
    }

    /// Lets weir send more. False: that is more than a window may have.
    pub(super) fn widen(&mut self, by: i64) -> bool {
        self.send_window += by;
        self.send_window <= i64::from(MOST_WINDOW)
    }

    /// By how much the client's window can be enlarged, if that is worth a frame. `most`: the size of the window.
    pub(super) fn allowance(&self, most: u32) -> Option<u32> {
        if self.is_whole || self.is_reset || self.is_ignored {
            return None;
        }
        allowance(most, self.window, self.body.len())
    }
}

/// How much of a window of `most` bytes a client may be allowed again, that may still send `window` and has sent `held` that were not
/// read: at least a half of it, because each time costs a frame.
pub(super) fn allowance(most: u32, window: i64, held: usize) -> Option<u32> {
    let more = i64::from(most) - window - held as i64;
    let is_worth_it = more > 0 && more >= i64::from(most / 2);
    u32::try_from(more).ok().filter(|_| is_worth_it)
}

/// No slot.
pub(super) const NO_SLOT: u32 = u32::MAX;
