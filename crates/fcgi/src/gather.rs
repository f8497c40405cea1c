//! Eight bytes that may come in pieces: a header, or the body of a record of fixed length.

/// Holds the first bytes of an eight-byte unit until the rest has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gather {
    bytes: [u8; 8],
    have: u8,
}

impl Gather {
    /// Takes what is missing from the front of `input`; the unit once it is whole. Straight from the input where it
    /// is whole there, as it nearly always is.
    #[inline]
    pub(crate) fn take(&mut self, input: &mut &[u8]) -> Option<[u8; 8]> {
        if self.have == 0
            && let Some((unit, rest)) = input.split_first_chunk::<8>()
        {
            *input = rest;
            return Some(*unit);
        }
        self.take_piece(input)
    }

    /// Whether nothing of a unit is held.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.have == 0
    }

    #[cold]
    fn take_piece(&mut self, input: &mut &[u8]) -> Option<[u8; 8]> {
        let have = usize::from(self.have);
        let (piece, rest) = input.split_at(input.len().min(8 - have));
        self.bytes[have..have + piece.len()].copy_from_slice(piece);
        *input = rest;
        self.have += piece.len() as u8; // at most 8
        if self.have < 8 {
            return None;
        }
        self.have = 0;
        Some(self.bytes)
    }
}
