//! Compresses bodies with all content codings that weir makes, from memory to memory.
//!
//! An [`Encoder`] takes a body in pieces and never waits; [`whole`] compresses a complete body. Both are plain computation,
//! so a caller who may not block has to limit the pieces or run them on another thread. Which answers are compressed is
//! the caller's decision ([`weir_semantics::compression`] has the rules of HTTP).

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use brotli::enc::{
    StandardAlloc,
    encode::{BrotliEncoderOperation, BrotliEncoderParameter, BrotliEncoderStateStruct},
};
use flate2::{Compress, Compression, FlushCompress, Status};
use weir_net::Spare;
use weir_semantics::coding::Coding;
use zstd_safe::{
    CCtx, CParameter, InBuffer, OutBuffer, ResetDirective, zstd_sys::ZSTD_EndDirective,
};

/// How much work and memory a body is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// A body whose end is not in sight. The encoder may exist for long, so it is small: [`STREAM_MEMORY`].
    Stream,
    /// A body for one client.
    Answer,
    /// A body that is compressed once for many clients.
    Kept,
}

/// What to do after the input of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// More follows: the encoder may hold the input back.
    Continue,
    /// The output so far must contain all input so far.
    Flush,
    /// The body ends.
    Finish,
}

/// The encoder failed, or there is no memory for it. Its output is not usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed;

/// One body that is being compressed.
pub struct Encoder {
    format: Format,
    coding: Coding,
    effort: Effort,
}

enum Format {
    Gzip(Compress),
    Brotli(Box<BrotliEncoderStateStruct<StandardAlloc>>),
    Zstd(CCtx<'static>),
}

impl Encoder {
    /// An encoder for a body. `size` is its exact length, if that is known.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn new(coding: Coding, effort: Effort, size: Option<u64>) -> Result<Encoder, Failed> {
        let format = match coding {
            Coding::Gzip => {
                let level = Compression::new(of(effort, GZIP));
                Format::Gzip(Compress::new_gzip(level, GZIP_WINDOW))
            }
            Coding::Brotli => {
                use BrotliEncoderParameter::{
                    BROTLI_PARAM_LGWIN, BROTLI_PARAM_QUALITY, BROTLI_PARAM_SIZE_HINT,
                };
                let mut state = BrotliEncoderStateStruct::new(StandardAlloc::default());
                let hint = u32::try_from(size.unwrap_or(0)).unwrap_or(u32::MAX);
                // This cannot fail: the values are constants in the allowed ranges.
                state.set_parameter(BROTLI_PARAM_QUALITY, of(effort, BROTLI));
                state.set_parameter(BROTLI_PARAM_LGWIN, of(effort, WINDOW));
                state.set_parameter(BROTLI_PARAM_SIZE_HINT, hint);
                Format::Brotli(Box::new(state))
            }
            Coding::Zstd => {
                let mut context = CCtx::try_create().ok_or(Failed)?;
                for parameter in [
                    CParameter::CompressionLevel(of(effort, ZSTD)),
                    CParameter::WindowLog(of(effort, WINDOW)),
                ] {
                    context.set_parameter(parameter).map_err(|_| Failed)?;
                }
                context.set_pledged_src_size(size).map_err(|_| Failed)?;
                Format::Zstd(context)
            }
        };
        Ok(Encoder {
            format,
            coding,
            effort,
        })
    }

    /// Compresses `input` and appends what is ready to `output`.
    ///
    /// # Errors
    ///
    /// The encoder failed. It must not be used again.
    pub fn encode(&mut self, input: &[u8], op: Op, output: &mut Vec<u8>) -> Result<(), Failed> {
        let format = &mut self.format;
        // If the library panics, other requests must go on.
        catch_unwind(AssertUnwindSafe(|| match format {
            Format::Gzip(gzip) => encode_gzip(gzip, input, op, output),
            Format::Brotli(brotli) => encode_brotli(brotli, input, op, output),
            Format::Zstd(zstd) => encode_zstd(zstd, input, op, output),
        }))
        .unwrap_or(Err(Failed))
    }

    /// Prepares an encoder that has finished for another body. False: it cannot be used again.
    fn renew(&mut self, size: usize) -> bool {
        match &mut self.format {
            Format::Gzip(gzip) => {
                gzip.reset();
                true
            }
            Format::Brotli(_) => false,
            Format::Zstd(context) => {
                let reset = context.reset(ResetDirective::SessionOnly);
                reset.is_ok() && context.set_pledged_src_size(Some(size as u64)).is_ok()
            }
        }
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encoder({}, {:?})", self.coding.name(), self.effort)
    }
}

thread_local! {
    /// Encoders of this thread that have finished: gzip and zstd for two efforts.
    static SPARE: Spare<Encoder> = const { Spare::new(4) };
}

/// Compresses a complete body. Encoders are used again by later calls on the same thread.
///
/// # Errors
///
/// The encoder failed, or there is no memory.
pub fn whole(coding: Coding, effort: Effort, body: &[u8]) -> Result<Vec<u8>, Failed> {
    let fits = |one: &Encoder| one.coding == coding && one.effort == effort;
    let spare = SPARE.with(|spare| spare.take_if(fits));
    let renewed = spare.and_then(|mut one| one.renew(body.len()).then_some(one));
    let mut encoder = match renewed {
        Some(encoder) => encoder,
        None => Encoder::new(coding, effort, Some(body.len() as u64))?,
    };
    let mut output = Vec::new();
    // Most texts become smaller than a third.
    let room = body.len() / 3 + SLACK;
    output.try_reserve(room).map_err(|_| Failed)?;
    encoder.encode(body, Op::Finish, &mut output)?;
    if !matches!(encoder.format, Format::Brotli(_)) {
        SPARE.with(|spare| spare.keep(encoder));
    }
    Ok(output)
}

fn encode_gzip(
    gzip: &mut Compress,
    mut input: &[u8],
    op: Op,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let flush = match op {
        Op::Continue => FlushCompress::None,
        Op::Flush => FlushCompress::Sync,
        Op::Finish => FlushCompress::Finish,
    };
    loop {
        reserve(output)?;
        let (before, room) = (gzip.total_in(), output.capacity() - output.len());
        let written = output.len();
        let status = gzip.compress_vec(input, output, flush);
        let status = status.map_err(|_| Failed)?;
        input = &input[(gzip.total_in() - before) as usize..];
        // If there is room left, the encoder had nothing more to write.
        let has_room = output.len() - written < room;
        match (status, op) {
            (Status::StreamEnd, _) => return Ok(()),
            (_, Op::Finish) if has_room && status == Status::BufError => return Err(Failed),
            (_, Op::Continue | Op::Flush) if has_room && input.is_empty() => return Ok(()),
            _ => {}
        }
    }
}

fn encode_brotli(
    brotli: &mut BrotliEncoderStateStruct<StandardAlloc>,
    input: &[u8],
    op: Op,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let operation = match op {
        Op::Continue => BrotliEncoderOperation::BROTLI_OPERATION_PROCESS,
        Op::Flush => BrotliEncoderOperation::BROTLI_OPERATION_FLUSH,
        Op::Finish => BrotliEncoderOperation::BROTLI_OPERATION_FINISH,
    };
    let (mut left, mut used) = (input.len(), 0);
    loop {
        let written = output.len();
        output.try_reserve(ROOM).map_err(|_| Failed)?;
        output.resize(written + ROOM, 0);
        let (mut room, mut count) = (ROOM, 0);
        let done = brotli.compress_stream(
            operation,
            &mut left,
            input,
            &mut used,
            &mut room,
            &mut output[written..],
            &mut count,
            &mut None,
            &mut |_, _, _, _| (),
        );
        output.truncate(written + count);
        if !done {
            return Err(Failed);
        }
        let is_done = match op {
            Op::Finish => brotli.is_finished(),
            Op::Continue | Op::Flush => left == 0 && !brotli.has_more_output(),
        };
        if is_done {
            return Ok(());
        }
    }
}

fn encode_zstd(
    context: &mut CCtx<'static>,
    input: &[u8],
    op: Op,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let directive = match op {
        Op::Continue => ZSTD_EndDirective::ZSTD_e_continue,
        Op::Flush => ZSTD_EndDirective::ZSTD_e_flush,
        Op::Finish => ZSTD_EndDirective::ZSTD_e_end,
    };
    let mut input_buffer = InBuffer::around(input);
    loop {
        reserve(output)?;
        let at = output.len();
        let mut buffer = OutBuffer::around_pos(output, at);
        let left = context.compress_stream2(&mut buffer, &mut input_buffer, directive);
        let left = left.map_err(|_| Failed)?;
        let is_done = match op {
            Op::Continue => input_buffer.pos() == input.len(),
            Op::Flush | Op::Finish => left == 0,
        };
        if is_done {
            return Ok(());
        }
    }
}

/// Makes room for more output.
fn reserve(output: &mut Vec<u8>) -> Result<(), Failed> {
    if output.capacity() - output.len() < SLACK {
        output.try_reserve(ROOM).map_err(|_| Failed)?;
    }
    Ok(())
}

/// The value for an effort.
fn of<T: Copy>(effort: Effort, values: [T; 3]) -> T {
    values[effort as usize]
}

/// Upper limit of the memory of an encoder for [`Effort::Stream`], bytes.
pub const STREAM_MEMORY: usize = 1 << 20;
/// The same for [`Effort::Answer`], which later bodies on the same thread use again.
pub const ANSWER_MEMORY: usize = 2 << 20;
/// The same for [`Effort::Kept`].
pub const KEPT_MEMORY: usize = 8 << 20;

/// Levels for the efforts, in their order. zlib's levels are 1 to 9, brotli's 0 to 11, zstd's 1 to 19.
const GZIP: [u32; 3] = [4, 5, 7];
const BROTLI: [u32; 3] = [3, 4, 6];
const ZSTD: [i32; 3] = [1, 3, 6];

/// Windows of brotli and zstd: the logarithm of their bytes. RFC 9659 allows at most 23.
const WINDOW: [u32; 3] = [17, 18, 20];
/// The largest window of gzip.
const GZIP_WINDOW: u8 = 15;

/// How much room for output is added at a time, bytes.
const ROOM: usize = 16 << 10;
/// With less room than this, more is added, bytes.
const SLACK: usize = 256;

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    const ALL: [Coding; 3] = [Coding::Gzip, Coding::Brotli, Coding::Zstd];
    const EFFORTS: [Effort; 3] = [Effort::Stream, Effort::Answer, Effort::Kept];

    /// Decodes the bytes as a client does. Fails unless they are one complete stream, or the beginning of one.
    fn original(coding: Coding, bytes: &[u8], is_whole: bool) -> Vec<u8> {
        let mut original = Vec::new();
        let read = match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut original),
            Coding::Brotli => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut original),
            Coding::Zstd => unzstd(bytes, &mut original),
        };
        assert_eq!(read.is_ok(), is_whole, "{coding:?}: {read:?}");
        original
    }

    fn unzstd(bytes: &[u8], original: &mut Vec<u8>) -> std::io::Result<usize> {
        let mut context = zstd_safe::DCtx::create();
        let mut input = InBuffer::around(bytes);
        loop {
            original.reserve(64 << 10);
            let at = original.len();
            let mut output = OutBuffer::around_pos(original, at);
            let left = context.decompress_stream(&mut output, &mut input).unwrap();
            let has_room = output.pos() < output.capacity();
            match left {
                0 => return Ok(original.len()),
                _ if has_room && input.pos() == bytes.len() => {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
                _ => {}
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn any_body_in_any_pieces_comes_out_again(
            (word, repeated) in (proptest::collection::vec(any::<u8>(), 0..300), 0..400_usize),
            cuts in proptest::collection::vec((0..60_000_usize, any::<bool>()), 0..8),
        ) {
            let body = word.repeat(repeated);
            for coding in ALL {
                for effort in EFFORTS {
                    let mut encoder = Encoder::new(coding, effort, None).unwrap();
                    let (mut output, mut rest) = (Vec::new(), &body[..]);
                    for (length, flush) in &cuts {
                        let (piece, after) = rest.split_at((*length).min(rest.len()));
                        rest = after;
                        let op = if *flush { Op::Flush } else { Op::Continue };
                        encoder.encode(piece, op, &mut output).unwrap();
                        if *flush {
                            let so_far = original(coding, &output, false);
                            prop_assert_eq!(so_far.len(), body.len() - rest.len());
                        }
                    }
                    encoder.encode(rest, Op::Finish, &mut output).unwrap();
                    prop_assert_eq!(&original(coding, &output, true), &body);
                    let at_once = whole(coding, effort, &body).unwrap();
                    prop_assert_eq!(&original(coding, &at_once, true), &body);
                }
            }
        }
    }

    #[test]
    fn text_becomes_much_smaller_and_noise_hardly_larger() {
        let text: String = (0..9000).map(|n| format!("<li>item {n}</li>")).collect();
        let mut state = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .take(100_000)
        .collect();
        for coding in ALL {
            for effort in EFFORTS {
                let small = whole(coding, effort, text.as_bytes()).unwrap();
                assert!(small.len() < text.len() / 3, "{coding:?}: {}", small.len());
                let large = whole(coding, effort, &noise).unwrap();
                assert!(
                    large.len() < noise.len() + 200,
                    "{coding:?}: {}",
                    large.len()
                );
            }
        }
    }

    #[test]
    fn contexts_of_zstd_stay_within_the_memory_that_is_counted_for_them() {
        let text: String = (0..200_000).map(|n| format!("<li>item {n}</li>")).collect();
        for (effort, limit) in [
            (Effort::Stream, STREAM_MEMORY),
            (Effort::Answer, ANSWER_MEMORY),
            (Effort::Kept, KEPT_MEMORY),
        ] {
            for size in [None, Some(text.len() as u64)] {
                let mut encoder = Encoder::new(Coding::Zstd, effort, size).unwrap();
                let mut output = Vec::new();
                let (first, second) = text.as_bytes().split_at(text.len() / 2);
                encoder.encode(first, Op::Flush, &mut output).unwrap();
                encoder.encode(second, Op::Finish, &mut output).unwrap();
                let Format::Zstd(context) = &encoder.format else {
                    panic!("another format");
                };
                assert!(
                    context.sizeof() <= limit,
                    "{effort:?}: {}",
                    context.sizeof()
                );
            }
        }
    }
}
