//! Complete answers, for files that the tests make.

use std::{
    fs,
    os::fd::AsFd,
    path::Path,
    rc::Rc,
    time::{Duration, UNIX_EPOCH},
};

use proptest::prelude::*;
use weir_sys::file::{self, Open};

use super::*;

/// 2024-02-03 04:05:06 UTC, and a fraction.
const MODIFIED: Duration = Duration::new(1_706_933_106, 789);
const DATE: &str = "Sat, 03 Feb 2024 04:05:06 GMT";
const EARLIER: &str = "Sat, 03 Feb 2024 04:05:05 GMT";
const LATER: &str = "Sat, 03 Feb 2024 04:05:07 GMT";
const TEXT: &str = "0123456789abcdefghij";

#[test]
fn a_whole_file_comes_with_all_its_headers() {
    let file = file(TEXT);
    let reply = get(&file, &[]);
    assert_eq!(reply.status, 200);
    assert_eq!(
        lines(&reply),
        [
            "accept-ranges: bytes",
            "cache-control: max-age=60",
            "content-length: 20",
            "content-type: text/plain; charset=utf-8",
            &format!("etag: {}", etag(&file)),
            &format!("last-modified: {DATE}"),
        ]
    );
    assert_eq!(body(&reply), TEXT);
    let head = serve(&file, &Method::HEAD, &asked(&[]));
    assert_eq!(lines(&head), lines(&reply));
    assert!(matches!(head.body, Body::Empty));
}

#[test]
fn an_empty_file_is_an_answer_too() {
    let file = file("");
    for headers in [&[][..], &[("range", "bytes=0-")], &[("range", "bytes=-1")]] {
        let reply = get(&file, headers);
        assert_eq!(reply.status, 200);
        assert_eq!(said(&reply.headers, "content-length"), "0");
        assert!(matches!(reply.body, Body::Empty));
    }
}

#[test]
fn conditions_in_their_order() {
    let file = file(TEXT);
    let tag = etag(&file);
    let weak = format!("W/{tag}");
    let list = format!("\"x\", {tag}");
    for (headers, status) in [
        (&[("if-none-match", tag.as_str())][..], 304),
        (&[("if-none-match", &weak)], 304),
        (&[("if-none-match", &list)], 304),
        (&[("if-none-match", "*")], 304),
        (&[("if-none-match", "\"x\"")], 200),
        (&[("if-none-match", "\"x\""), ("if-none-match", &tag)], 304),
        (&[("if-none-match", "x")], 200),
        (&[("if-modified-since", DATE)], 304),
        (&[("if-modified-since", LATER)], 304),
        (&[("if-modified-since", EARLIER)], 200),
        (
            &[("if-modified-since", "Saturday, 03-Feb-24 04:05:06 GMT")],
            304,
        ),
        (&[("if-modified-since", "Sat Feb  3 04:05:06 2024")], 304),
        (&[("if-modified-since", "yesterday")], 200),
        (
            &[("if-modified-since", DATE), ("if-modified-since", DATE)],
            200,
        ),
        // If there is a tag, it decides.
        (
            &[("if-none-match", "\"x\""), ("if-modified-since", DATE)],
            200,
        ),
        (
            &[("if-none-match", &tag), ("if-modified-since", EARLIER)],
            304,
        ),
        (&[("if-match", &tag)], 200),
        (&[("if-match", &list)], 200),
        (&[("if-match", "*")], 200),
        (&[("if-match", &weak)], 412),
        (&[("if-match", "\"x\"")], 412),
        (&[("if-match", "x")], 412),
        (&[("if-unmodified-since", DATE)], 200),
        (&[("if-unmodified-since", LATER)], 200),
        (&[("if-unmodified-since", EARLIER)], 412),
        (&[("if-unmodified-since", "never")], 200),
        (&[("if-match", &tag), ("if-unmodified-since", EARLIER)], 200),
        (
            &[("if-match", "\"x\""), ("if-unmodified-since", LATER)],
            412,
        ),
        (&[("if-match", "\"x\""), ("if-none-match", &tag)], 412),
        (&[("if-match", &tag), ("if-none-match", &tag)], 304),
        (
            &[("if-unmodified-since", DATE), ("if-modified-since", DATE)],
            304,
        ),
        // Conditions come before ranges.
        (&[("if-none-match", &tag), ("range", "bytes=0-1")], 304),
        (&[("if-match", "\"x\""), ("range", "bytes=0-1")], 412),
    ] {
        for method in [Method::GET, Method::HEAD] {
            let reply = serve(&file, &method, &asked(headers));
            assert_eq!(reply.status, status, "{method} {headers:?}");
        }
    }
}

#[test]
fn not_modified_says_what_a_cache_needs() {
    let file = file(TEXT);
    let reply = get(&file, &[("if-none-match", "*")]);
    assert_eq!(
        lines(&reply),
        [
            "cache-control: max-age=60",
            &format!("etag: {}", etag(&file)),
            &format!("last-modified: {DATE}"),
        ]
    );
    assert!(matches!(reply.body, Body::Empty));
}

#[test]
fn one_range() {
    let file = file(TEXT);
    for (range, content_range, text) in [
        ("bytes=0-3", "bytes 0-3/20", "0123"),
        ("bytes=18-", "bytes 18-19/20", "ij"),
        ("bytes=-2", "bytes 18-19/20", "ij"),
        ("bytes=0-", "bytes 0-19/20", TEXT),
        ("bytes=19-500", "bytes 19-19/20", "j"),
        ("bytes=2-3,3-5", "bytes 2-5/20", "2345"),
    ] {
        let reply = get(&file, &[("range", range)]);
        assert_eq!(reply.status, 206, "{range}");
        assert_eq!(said(&reply.headers, "content-range"), content_range);
        assert_eq!(
            said(&reply.headers, "content-length"),
            text.len().to_string()
        );
        assert_eq!(
            said(&reply.headers, "content-type"),
            "text/plain; charset=utf-8"
        );
        assert_eq!(said(&reply.headers, "etag"), etag(&file));
        assert_eq!(body(&reply), text);
    }
    for ignored in ["bytes=3-2", "chapters=1-2", "bytes=a-"] {
        assert_eq!(get(&file, &[("range", ignored)]).status, 200, "{ignored}");
    }
    assert_eq!(
        get(&file, &[("range", "bytes=0-1"), ("range", "bytes=2-3")]).status,
        200
    );
    let head = serve(&file, &Method::HEAD, &asked(&[("range", "bytes=0-3")]));
    assert_eq!(head.status, 200);
}

#[test]
fn a_range_beyond_the_end_is_refused_with_the_length() {
    let reply = get(&file(TEXT), &[("range", "bytes=20-")]);
    assert_eq!(reply.status, 416);
    assert_eq!(lines(&reply), ["content-range: bytes */20"]);
}

#[test]
fn if_range_takes_the_range_only_of_the_same_file() {
    let file = file(TEXT);
    let tag = etag(&file);
    let weak = format!("W/{tag}");
    for (value, status) in [
        (tag.as_str(), 206),
        (&weak, 200),
        ("\"x\"", 200),
        (DATE, 206),
        (LATER, 200),
        (EARLIER, 200),
        ("nonsense", 200),
        ("", 200),
    ] {
        let reply = get(&file, &[("range", "bytes=0-3"), ("if-range", value)]);
        assert_eq!(reply.status, status, "{value}");
    }
    // A file that was changed in this second may change again within the same second.
    let fresh = Made::new(TEXT.as_bytes(), None);
    let modified = said(&fresh.entry.identity().headers, "last-modified");
    let reply = get(
        &fresh.entry,
        &[("range", "bytes=0-3"), ("if-range", modified)],
    );
    assert_eq!(reply.status, 200);
}

#[test]
fn several_ranges_byte_by_byte() {
    let content = "x".repeat(1000);
    let file = file(&content);
    let reply = multipart(
        file.identity(),
        file.identity().headers.copy(ROOM),
        &[
            Span {
                start: 500,
                end: 503,
            },
            Span { start: 0, end: 2 },
        ],
        "B",
    );
    let expected = "--B\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes 500-502/1000\r\n\r\nxxx\
        \r\n--B\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes 0-1/1000\r\n\r\nxx\
        \r\n--B--\r\n";
    assert_eq!(reply.status, 206);
    assert_eq!(body(&reply), expected);
    assert_eq!(
        said(&reply.headers, "content-length"),
        expected.len().to_string()
    );
    assert_eq!(
        said(&reply.headers, "content-type"),
        "multipart/byteranges; boundary=B"
    );
    assert!(reply.headers.get("content-range").is_none());

    let reply = get(&file, &[("range", "bytes=500-502,0-1")]);
    let content_type = said(&reply.headers, "content-type");
    let boundary = content_type
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    assert_eq!(
        body(&reply),
        expected.replace("--B", &format!("--{boundary}"))
    );
}

#[test]
fn large_files_are_sent_from_their_descriptor() {
    let content: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
    let made = Made::new(&content, Some(MODIFIED));
    assert!(made.entry.identity().content.is_none());
    let reply = get(&made.entry, &[]);
    assert!(matches!(&reply.body, Body::Parts(parts) if matches!(parts[0], Part::File(_))));
    assert_eq!(bytes(&reply), content);
    let reply = get(&made.entry, &[("range", "bytes=100000-100099")]);
    assert_eq!(bytes(&reply), &content[100_000..100_100]);
    let reply = get(&made.entry, &[("range", "bytes=0-9,199990-")]);
    let bytes = bytes(&reply);
    assert_eq!(
        said(&reply.headers, "content-length"),
        bytes.len().to_string()
    );
    let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    assert!(has(&content[..10]) && has(&content[199_990..]));
}

#[test]
fn precompressed_files_are_chosen_and_have_validators_of_their_own() {
    let made = Made::with(
        TEXT.as_bytes(),
        Some(MODIFIED),
        &[("br", "BR"), ("gz", "GZIP")],
    );
    let identity = get(&made.entry, &[]);
    assert_eq!(said(&identity.headers, "vary"), "accept-encoding");
    assert!(identity.headers.get("content-encoding").is_none());
    assert_eq!(body(&identity), TEXT);

    let brotli = get(&made.entry, &[("accept-encoding", "gzip, br")]);
    assert_eq!(said(&brotli.headers, "content-encoding"), "br");
    assert_eq!(
        said(&brotli.headers, "content-type"),
        said(&identity.headers, "content-type")
    );
    assert_eq!(said(&brotli.headers, "vary"), "accept-encoding");
    assert_eq!(said(&brotli.headers, "content-length"), "2");
    assert_eq!(body(&brotli), "BR");
    let tag = said(&brotli.headers, "etag");
    assert!(tag.ends_with("-br\""), "{tag}");
    assert_ne!(
        said(&brotli.headers, "etag"),
        said(&identity.headers, "etag")
    );

    let again = get(
        &made.entry,
        &[("accept-encoding", "br"), ("if-none-match", tag)],
    );
    assert_eq!(again.status, 304);
    assert_eq!(said(&again.headers, "vary"), "accept-encoding");
    assert!(again.headers.get("content-encoding").is_none());
    let other = get(
        &made.entry,
        &[("accept-encoding", "gzip"), ("if-none-match", tag)],
    );
    assert_eq!(
        (other.status.as_u16(), body(&other).as_str()),
        (200, "GZIP")
    );
    let part = get(
        &made.entry,
        &[("accept-encoding", "gzip"), ("range", "bytes=1-2")],
    );
    assert_eq!((part.status.as_u16(), body(&part).as_str()), (206, "ZI"));
    assert_eq!(said(&part.headers, "content-range"), "bytes 1-2/4");
}

#[test]
fn a_time_in_the_future_or_before_1970_is_not_passed_on() {
    let future = Made::new(b"x", Some(Duration::from_secs(9_000_000_000)));
    let modified = said(&future.entry.identity().headers, "last-modified");
    assert!(httpdate::parse_http_date(modified).unwrap() <= std::time::SystemTime::now());
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("old.txt"), "x").unwrap();
    let old = fs::File::options()
        .write(true)
        .open(dir.path().join("old.txt"))
        .unwrap();
    old.set_modified(UNIX_EPOCH - Duration::from_secs(5))
        .unwrap();
    let entry = open(dir.path(), "old.txt");
    assert_eq!(
        said(&entry.identity().headers, "last-modified"),
        "Thu, 01 Jan 1970 00:00:00 GMT"
    );
}

#[test]
fn a_file_that_was_replaced_is_sent_as_it_was_opened() {
    let made = Made::new(&[b'a'; 100_000], Some(MODIFIED));
    let reply = get(&made.entry, &[]);
    let root = file::open_dir(made.dir.path()).unwrap();
    assert!(made.entry.is_current(root.as_fd(), 1));
    let path = made.dir.path().join("file.txt");
    fs::write(path.with_extension("new"), vec![b'b'; 100_000]).unwrap();
    fs::rename(path.with_extension("new"), path).unwrap();
    assert_eq!(bytes(&reply), [b'a'; 100_000]);
    // Within one turn of the reactor, and without a read in between, the file is not checked again.
    assert!(made.entry.is_current(root.as_fd(), 1));
    assert!(!made.entry.is_current(root.as_fd(), 2));
}

proptest! {
    #[test]
    fn every_answer_has_the_length_it_says(
        headers in proptest::collection::vec(
            (
                prop_oneof![
                    Just("range"), Just("if-range"), Just("if-match"), Just("if-none-match"),
                    Just("if-modified-since"), Just("if-unmodified-since"), Just("accept-encoding"),
                ],
                prop_oneof![
                    "bytes=[0-9]{0,3}-[0-9]{0,3}(,[0-9]{0,4}-[0-9]{0,4}){0,4}",
                    Just(DATE.to_owned()), Just(LATER.to_owned()), Just("*".to_owned()),
                    "(W/)?\"[a-z]{0,2}\"(, ?\"[a-z]\"){0,2}", "(br|gzip|\\*)(;q=[01](\\.[0-9]{0,3})?)?", "[ -~]{0,20}",
                ],
            ),
            0..5,
        ),
        is_get: bool,
    ) {
        thread_local!(static MADE: Made =
            Made::with("0123456789".repeat(50).as_bytes(), Some(MODIFIED), &[("br", "BROTLI")]));
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let method = if is_get { Method::GET } else { Method::HEAD };
        MADE.with(|made| {
            let reply = serve(&made.entry, &method, &asked(&headers));
            let length = reply.headers.get("content-length").map(|l| std::str::from_utf8(l).unwrap().parse::<usize>().unwrap());
            match reply.status.as_u16() {
                200 | 206 if is_get => assert_eq!(length, Some(bytes(&reply).len())),
                200 => assert!(length.is_some() && bytes(&reply).is_empty()),
                304 | 412 | 416 => assert!(length.is_none() && bytes(&reply).is_empty()),
                status => panic!("{status}"),
            }
        });
    }
}

struct Made {
    dir: tempfile::TempDir,
    entry: FileEntry,
}

impl Made {
    fn new(content: &[u8], modified: Option<Duration>) -> Self {
        Self::with(content, modified, &[])
    }

    fn with(content: &[u8], modified: Option<Duration>, variants: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file.txt");
        fs::write(&path, content).unwrap();
        for (extension, content) in variants {
            fs::write(dir.path().join(format!("file.txt.{extension}")), content).unwrap();
        }
        if let Some(modified) = modified {
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(UNIX_EPOCH + modified).unwrap();
        }
        let entry = open(dir.path(), "file.txt");
        Self { dir, entry }
    }
}

fn open(dir: &Path, name: &str) -> FileEntry {
    let root = file::open_dir(dir).unwrap();
    let walk = Open::default();
    let opened = file::open_beneath(root.as_fd(), name.as_bytes(), walk).unwrap();
    let stat = file::fstat(opened.as_fd()).unwrap();
    let source = Source {
        root: root.as_fd(),
        path: name.as_bytes(),
        walk,
        as_text: false,
    };
    LoadedFile::load(&source, opened, stat, &Presentation::for_tests())
        .unwrap()
        .into()
}

fn file(content: &str) -> Rc<FileEntry> {
    Rc::new(Made::new(content.as_bytes(), Some(MODIFIED)).entry)
}

fn etag(file: &FileEntry) -> String {
    file.identity().etag.to_str().unwrap().to_owned()
}

fn get(file: &FileEntry, headers: &[(&'static str, &str)]) -> Reply {
    serve(file, &Method::GET, &asked(headers))
}

fn said<'f>(headers: &'f Fields, name: &'static str) -> &'f str {
    std::str::from_utf8(headers.get(name).unwrap()).unwrap()
}

fn asked(headers: &[(&'static str, &str)]) -> weir_http1::ParsedFields {
    let mut fields = weir_http1::ParsedFields::default();
    for (name, value) in headers {
        fields.push(name.as_bytes(), value.as_bytes());
    }
    fields
}

fn lines(reply: &Reply) -> Vec<String> {
    let line = |(name, value): (&[u8], &[u8])| {
        let [name, value] = [name, value].map(|text| std::str::from_utf8(text).unwrap());
        format!("{}: {value}", name.to_ascii_lowercase())
    };
    let mut lines: Vec<_> = reply.headers.iter().map(line).collect();
    lines.sort();
    lines
}

fn body(reply: &Reply) -> String {
    String::from_utf8(bytes(reply)).unwrap()
}

fn bytes(reply: &Reply) -> Vec<u8> {
    let mut all = Vec::new();
    match &reply.body {
        Body::Empty => {}
        Body::Bytes(bytes) => all.extend_from_slice(bytes),
        Body::Parts(parts) => {
            for part in parts {
                match part {
                    Part::Trailers(_) => {}
                    Part::Bytes(bytes) => all.extend_from_slice(bytes),
                    Part::File(part) => {
                        let (file, mut offset, length) = part.for_thread();
                        let mut part = vec![0; length];
                        let mut filled = 0;
                        while filled < part.len() {
                            let read =
                                file::read_at(file.as_fd(), &mut part[filled..], offset).unwrap();
                            assert_ne!(read, 0);
                            filled += read;
                            offset += read as u64;
                        }
                        all.extend_from_slice(&part);
                    }
                }
            }
        }
        body => panic!("{body:?}"),
    }
    all
}
