//! Heads in frames: of requests as they are read, and of answers as they are sent.

use http::Version;

use super::{
    frames::{DECOMPRESSION_FAILED, HEADERS, MESSAGE_ERROR, Wrong, put_head},
    qpack,
    receive::Failed,
};
use crate::{
    Fields,
    multiplex::{
        Limits,
        head::{self, AnswerHead, Building, Refused, TOO_LARGE, Unfit, Whole},
        literals::Malformed,
    },
};

/// Reads the head of a request.
///
/// # Errors
///
/// The connection must end. An error of this head alone is in the returned value.
pub(super) fn read(block: &[u8], limits: &Limits) -> Result<Result<Whole, Unfit>, Failed> {
    let mut building = Building::new(Version::HTTP_3, limits);
    let read = qpack::decode(block, false, |name, value| building.field(name, value));
    let whole = building.finish();
    read.map(|()| whole).map_err(undecodable)
}

/// Which limit a head that begins with these bytes exceeds.
pub(super) fn too_large(begin: &[u8], limits: &Limits) -> Refused {
    let mut building = Building::new(Version::HTTP_3, limits);
    let _ = qpack::decode(begin, true, |name, value| building.field(name, value));
    match building.finish() {
        Err(Unfit::Refused(refused)) => refused,
        _ => TOO_LARGE,
    }
}

/// Reads the fields behind a body, which are not used.
pub(super) fn read_trailers(block: &[u8]) -> Result<(), Failed> {
    let mut is_fit = true;
    qpack::decode(block, false, |name, value| {
        is_fit &= head::check(name, value).is_ok();
    })
    .map_err(undecodable)?;
    match is_fit {
        true => Ok(()),
        false => Err(Failed::Stream(MESSAGE_ERROR)),
    }
}

fn undecodable(_: Malformed) -> Failed {
    Failed::Connection(Wrong {
        code: DECOMPRESSION_FAILED,
        why: "a head cannot be decompressed",
    })
}

/// The frame with fields behind a body.
pub(super) fn trailers(fields: &Fields) -> Vec<u8> {
    let mut block = Vec::new();
    qpack::begin(&mut block);
    head::each(fields, true, |_, name, value| {
        qpack::put(&mut block, name, value);
    });
    framed(&block)
}

/// The frame with the head of an answer.
pub(super) fn encode(head: &AnswerHead) -> Vec<u8> {
    let mut block = Vec::with_capacity(256);
    qpack::begin(&mut block);
    qpack::put(&mut block, b":status", head.status.as_str().as_bytes());
    head.each(|_, name, value| qpack::put(&mut block, name, value));
    framed(&block)
}

fn framed(block: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(block.len() + 8);
    put_head(&mut frame, HEADERS, block.len());
    frame.extend_from_slice(block);
    frame
}
