//! What compression saves: of one answer for its log line, and of all answers since the start.

use std::{
    cell::Cell,
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use weir_semantics::coding::Coding;

/// How an answer was compressed.
#[derive(Debug, Clone)]
pub(crate) struct Compressed {
    pub(crate) coding: Coding,
    original: Original,
}

/// The length of an answer's body before compression, bytes.
#[derive(Debug, Clone)]
enum Original {
    /// Original bytes of a body that was compressed before it was sent.
    Whole(u64),
    /// What a body that is compressed while it is sent had so far.
    SoFar(Rc<Cell<u64>>),
}

impl Compressed {
    /// A body of `original` bytes, which was compressed before it was sent.
    pub(super) fn whole(coding: Coding, original: u64) -> Compressed {
        let original = Original::Whole(original);
        Compressed { coding, original }
    }

    /// A body that is compressed while it is sent, and where its bytes are counted before that.
    pub(super) fn stream(coding: Coding) -> (Compressed, Rc<Cell<u64>>) {
        let counted = Rc::new(Cell::new(0));
        let original = Original::SoFar(counted.clone());
        (Compressed { coding, original }, counted)
    }

    /// Bytes before compression.
    pub(crate) fn original(&self) -> u64 {
        match &self.original {
            Original::Whole(bytes) => *bytes,
            Original::SoFar(bytes) => bytes.get(),
        }
    }
}

/// All compressed answers since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts([Sums; CODINGS.len()]);

#[derive(Debug, Default)]
struct Sums {
    answers: AtomicU64,
    original: AtomicU64,
    sent: AtomicU64,
}

/// The compressed answers with one coding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CodingCounts {
    pub(crate) answers: u64,
    /// Bytes before compression.
    pub(crate) original: u64,
    /// Bytes after compression that were sent.
    pub(crate) sent: u64,
}

impl Counts {
    /// Counts an answer after `sent` bytes went to the client. `is_whole`: the answer is complete.
    pub(crate) fn add(&self, compressed: &Compressed, sent: u64, is_whole: bool) {
        // Only a stream knows from which original bytes a part was made.
        if !is_whole && matches!(compressed.original, Original::Whole(_)) {
            return;
        }
        let sums = CODINGS.iter().zip(&self.0);
        for (_, sums) in sums.filter(|(coding, _)| **coding == compressed.coding) {
            sums.answers.fetch_add(1, Relaxed);
            sums.original.fetch_add(compressed.original(), Relaxed);
            sums.sent.fetch_add(sent, Relaxed);
        }
    }

    /// By coding.
    pub(crate) fn all(&self) -> [(Coding, CodingCounts); CODINGS.len()] {
        std::array::from_fn(|index| {
            let sums = &self.0[index];
            let counts = CodingCounts {
                answers: sums.answers.load(Relaxed),
                original: sums.original.load(Relaxed),
                sent: sums.sent.load(Relaxed),
            };
            (CODINGS[index], counts)
        })
    }
}

/// In the order of the metrics.
const CODINGS: [Coding; 3] = super::ORDER;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_was_cut_counts_only_if_its_original_was_cut_too() {
        let counts = Counts::default();
        let whole = Compressed::whole(Coding::Gzip, 1000);
        counts.add(&whole, 100, true);
        counts.add(&whole, 50, false);
        let (stream, counted) = Compressed::stream(Coding::Zstd);
        counted.set(300);
        counts.add(&stream, 30, false);
        let of = |answers, original, sent| CodingCounts {
            answers,
            original,
            sent,
        };
        assert_eq!(
            counts.all(),
            [
                (Coding::Zstd, of(1, 300, 30)),
                (Coding::Brotli, of(0, 0, 0)),
                (Coding::Gzip, of(1, 1000, 100)),
            ]
        );
    }
}
