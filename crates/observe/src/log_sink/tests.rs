//! What the output of a log promises, with files, pipes and disks that fail or block.

use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;

use weir_test::wait_until;

use super::*;

/// fcntl.h; the value on Linux, except for a few rare architectures.
const O_NONBLOCK: i32 = 0o4000;

const SOON: Duration = Duration::from_secs(30);

fn appending(path: &Path) -> OwnedFd {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .expect("a log file")
        .into()
}

/// The reports of all logs in order, each with the name of its log.
static REPORTS: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

fn keep_report(name: &str, trouble: &Trouble) {
    REPORTS
        .lock()
        .unwrap()
        .push((name.to_owned(), format!("{trouble:?}")));
}

fn reports(name: &str) -> Vec<String> {
    let reports = REPORTS.lock().unwrap();
    reports
        .iter()
        .filter(|(of, _)| of == name)
        .map(|(_, trouble)| trouble.clone())
        .collect()
}

fn quick() -> Options {
    Options {
        max_delay: Duration::from_millis(2),
        limit: 1 << 20,
        retry: Duration::from_millis(5),
        report: keep_report,
        ..Options::default()
    }
}

/// Line `n` of writer `who`; of different lengths, so that boundaries fall anywhere.
fn line(who: usize, n: usize) -> Vec<u8> {
    format!("{who} {n} {}\n", "x".repeat(n % 200)).into_bytes()
}

/// How many lines of each of the `writers` the text has. All lines must be complete, in order, and none twice.
fn counted(text: &[u8], writers: usize) -> Vec<usize> {
    let mut seen = vec![None; writers];
    let mut counts = vec![0; writers];
    assert!(
        text.is_empty() || text.ends_with(b"\n"),
        "the last line is whole"
    );
    for found in text.split_inclusive(|&byte| byte == b'\n') {
        let words = std::str::from_utf8(found).expect("text");
        let mut words = words.split(' ');
        let who: usize = words
            .next()
            .and_then(|word| word.parse().ok())
            .expect("a writer");
        let n: usize = words
            .next()
            .and_then(|word| word.parse().ok())
            .expect("a number");
        assert_eq!(found, line(who, n));
        assert!(
            seen[who] < Some(n),
            "line {n} of {who} after {:?}",
            seen[who]
        );
        seen[who] = Some(n);
        counts[who] += 1;
    }
    counts
}

#[test]
fn lines_of_many_threads_are_whole_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let sink = Sink::start("many", Target::Fd(appending(&path)), Options::default()).unwrap();
    thread::scope(|scope| {
        for who in 0..4 {
            let sink = &sink;
            scope.spawn(move || (0..5_000).for_each(|n| sink.push(&line(who, n))));
        }
    });
    assert!(sink.flush(SOON));
    assert_eq!(counted(&fs::read(&path).unwrap(), 4), [5_000; 4]);
    assert_eq!(sink.lost(), 0);
}

#[test]
fn a_line_is_written_soon_without_being_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let sink = Sink::start("soon", Target::Fd(appending(&path)), Options::default()).unwrap();
    for round in 1..=3 {
        sink.push(b"a line\n");
        wait_until("the line", || {
            fs::read(&path).unwrap() == b"a line\n".repeat(round)
        });
    }
}

#[test]
fn reopened_under_load_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = |n: usize| folder.path().join(format!("log.{n}"));
    let sink = Sink::start("reopen", Target::Fd(appending(&path(0))), quick()).unwrap();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|who| {
                let sink = &sink;
                scope.spawn(move || {
                    for n in 0..20_000 {
                        sink.push(&line(who, n));
                        if n % 100 == 0 {
                            assert!(sink.flush(SOON));
                        }
                    }
                })
            })
            .collect();
        let mut files = 1;
        while !writers.iter().all(|writer| writer.is_finished()) {
            sink.reopen(appending(&path(files)));
            files += 1;
            thread::sleep(Duration::from_millis(1));
        }
        assert!(files > 3, "only {files} files");
        assert!(sink.shutdown(SOON));
        let text: Vec<u8> = (0..files)
            .flat_map(|n| {
                let text = fs::read(path(n)).unwrap();
                counted(&text, 3);
                text
            })
            .collect();
        assert_eq!(counted(&text, 3), [20_000; 3]);
    });
    assert_eq!(sink.lost(), 0);
}

#[test]
fn a_pipe_that_nobody_reads_blocks_nobody() {
    let (mut reader, writer) = io::pipe().unwrap();
    let sink = Sink::start("unread pipe", Target::Fd(writer.into()), quick()).unwrap();
    // Much more than the pipe and the buffer hold. If a push waited, the test would never end.
    let all = 30_000;
    (0..all).for_each(|n| sink.push(&line(0, n)));
    let lost = sink.lost() as usize;
    assert!(lost > 10_000, "{lost}");
    assert!(
        !sink.flush(Duration::from_millis(20)),
        "a flush has its limit"
    );
    assert_eq!(
        reports("unread pipe").len(),
        1,
        "losing is told once an interval"
    );

    // When somebody reads again, all kept lines arrive, and the lines that are logged from then on.
    let (send, read) = mpsc::channel();
    let collecting = thread::spawn(move || {
        let mut text = Vec::new();
        let mut chunk = [0; 1000];
        while let Ok(length @ 1..) = reader.read(&mut chunk) {
            text.extend_from_slice(&chunk[..length]);
        }
        send.send(text).unwrap();
    });
    assert!(sink.flush(SOON));
    sink.push(&line(0, all));
    wait_until("the report of the end", || {
        reports("unread pipe").len() == 2
    });
    assert!(
        reports("unread pipe")[1].starts_with(&format!("Recovered({lost}")),
        "{:?}",
        reports("unread pipe")
    );
    assert!(sink.shutdown(SOON));
    drop(sink);
    let text = read
        .recv_timeout(SOON)
        .expect("the pipe is closed with the sink");
    collecting.join().unwrap();
    assert_eq!(counted(&text, 1), [all + 1 - lost]);
}

#[test]
fn a_full_pipe_that_does_not_block_is_waited_for() {
    // A reopened pipe has its own flags.
    let (mut reader, writer) = io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let non_blocking = OpenOptions::new()
        .write(true)
        .custom_flags(O_NONBLOCK)
        .open(path)
        .unwrap();
    drop(writer);
    let sink = Sink::start("full pipe", Target::Fd(non_blocking.into()), quick()).unwrap();
    (0..3_000).for_each(|n| sink.push(&line(0, n)));
    assert!(!sink.flush(Duration::from_millis(50)));
    let reading = thread::spawn(move || {
        let mut text = Vec::new();
        reader.read_to_end(&mut text).unwrap();
        text
    });
    assert!(sink.shutdown(SOON));
    drop(sink);
    assert_eq!(counted(&reading.join().unwrap(), 1), [3_000]);
    assert_eq!(reports("full pipe"), [""; 0]);
}

#[test]
fn a_socket_that_is_not_read_is_given_up_at_the_end() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let sink = Sink::start("unread socket", Target::Fd(ours.into()), quick()).unwrap();
    (0..8_000).for_each(|n| sink.push(&line(0, n)));
    let accepted = 8_000 - sink.lost();
    assert!(
        !sink.shutdown(Duration::from_millis(50)),
        "not all could be written"
    );
    assert!(sink.lost() > 8_000 - accepted);
    let before = sink.lost();
    sink.push(b"too late\n");
    assert_eq!(sink.lost(), before + 1);
    drop(theirs);
}

#[test]
fn a_full_disk_loses_lines_and_tells_it() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let sink = Sink::start("full disk", Target::Fd(full.into()), quick()).unwrap();
    (0..1_000).for_each(|n| sink.push(&line(0, n)));
    wait_until("the report", || !reports("full disk").is_empty());
    assert!(
        reports("full disk")[0].contains("StorageFull"),
        "{:?}",
        reports("full disk")
    );
    // Lines that are kept while the disk is full are written when there is room.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    sink.reopen(appending(&path));
    assert!(sink.flush(SOON));
    assert_eq!(counted(&fs::read(&path).unwrap(), 1), [1_000]);
    wait_until("the report of the end", || reports("full disk").len() == 2);
    assert_eq!(reports("full disk")[1], "Recovered(0)");
}

#[test]
fn what_a_full_disk_loses_is_bounded_and_counted() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let sink = Sink::start("full for long", Target::Fd(full.into()), quick()).unwrap();
    let all = 30_000;
    (0..all).for_each(|n| sink.push(&line(0, n)));
    let lost = sink.lost() as usize;
    assert!(lost > 0);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    sink.reopen(appending(&path));
    assert!(sink.flush(SOON));
    let text = fs::read(&path).unwrap();
    assert!(text.len() <= quick().limit);
    assert_eq!(counted(&text, 1), [all - lost]);
}

#[test]
fn a_full_disk_does_not_hold_up_the_end() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let options = Options {
        retry: SOON,
        ..quick()
    };
    let sink = Sink::start("full at the end", Target::Fd(full.into()), options).unwrap();
    sink.push(b"1\n");
    sink.push(b"2\n");
    wait_until("the report", || !reports("full at the end").is_empty());
    assert!(!sink.shutdown(SOON));
    assert_eq!(sink.lost(), 2);
}

#[test]
fn a_closed_pipe_is_told() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let sink = Sink::start("closed pipe", Target::Fd(writer.into()), quick()).unwrap();
    sink.push(b"a line\n");
    wait_until("the report", || !reports("closed pipe").is_empty());
    assert!(
        reports("closed pipe")[0].contains("BrokenPipe"),
        "{:?}",
        reports("closed pipe")
    );
}

#[test]
fn a_line_that_was_written_in_part_is_written_again_whole() {
    // A socket accepts a part of a write, like a disk that is nearly full.
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let sink = Sink::start("in part", Target::Fd(ours.into()), quick()).unwrap();
    let long = |n: usize| format!("{n} {}\n", "x".repeat(150_000));
    (0..5).for_each(|n| sink.push(long(n).as_bytes()));
    wait_until("a part of the second line", || {
        rustix::io::ioctl_fionread(&theirs).unwrap() > long(0).len() as u64
    });
    assert!(!sink.flush(Duration::from_millis(20)));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    sink.reopen(appending(&path));
    assert!(sink.shutdown(SOON));
    drop(sink);
    let mut before = String::new();
    theirs.read_to_string(&mut before).unwrap();
    let after = fs::read_to_string(&path).unwrap();
    let whole = before.matches('\n').count();
    assert!(
        !before.is_empty() && !before.ends_with('\n'),
        "{} bytes: a part of a line",
        before.len()
    );
    assert_eq!(after.matches('\n').count(), 5 - whole);
    assert!(after == (whole..5).map(long).collect::<String>());
    assert_eq!(line_start(b"first\nsecond\n", 9), 6);
}

#[test]
fn off_is_nothing() {
    let sink = Sink::start("off", Target::Off, Options::default()).unwrap();
    assert!(sink.is_off());
    sink.push(b"a line\n");
    assert!(sink.flush(Duration::ZERO) && sink.shutdown(Duration::ZERO));
    assert_eq!(sink.lost(), 0);
}

#[test]
fn a_dropped_sink_has_written_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let options = Options {
        max_delay: SOON,
        ..Options::default()
    };
    let sink = Sink::start("dropped", Target::Fd(appending(&path)), options).unwrap();
    sink.push(b"a line\n");
    drop(sink);
    assert_eq!(fs::read(&path).unwrap(), b"a line\n");
}

/// A thread that collects lines writes `first` of them, waits until the test has looked, and gives the rest at its end.
#[test]
fn a_thread_that_collects_gives_its_lines_in_order_before_it_waits_and_at_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let sink = Sink::start("blocks", Target::Fd(appending(&path)), quick()).unwrap();
    let written = || counted(&fs::read(&path).unwrap(), 1)[0];
    let (go, wait) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let sink = &sink;
        let collects = scope.spawn(move || {
            let put = |n| sink.put_line(|out| out.extend_from_slice(&line(0, n)));
            blocks::collect_here();
            (0..3).for_each(put);
            tell.send(()).unwrap();
            wait.recv().unwrap();
            blocks::give();
            tell.send(()).unwrap();
            wait.recv().unwrap();
            // More than a block, so that most of them are given without a call.
            (3..1_000).for_each(put);
            tell.send(()).unwrap();
            wait.recv().unwrap();
        });
        told.recv().unwrap();
        assert!(sink.flush(SOON));
        assert_eq!(written(), 0, "lines of a thread that works are collected");
        go.send(()).unwrap();
        told.recv().unwrap();
        assert!(sink.flush(SOON));
        assert_eq!(written(), 3);
        go.send(()).unwrap();
        told.recv().unwrap();
        assert!(sink.flush(SOON));
        let some = written();
        assert!((800..1_000).contains(&some), "{some}");
        go.send(()).unwrap();
        collects.join().unwrap();
    });
    assert!(sink.flush(SOON));
    assert_eq!(written(), 1_000, "a thread that ends leaves nothing behind");
    // Threads that do not collect give each line at once.
    sink.put_line(|out| out.extend_from_slice(&line(0, 1_000)));
    assert!(sink.flush(SOON));
    assert_eq!(written(), 1_001);
}

#[test]
fn the_end_of_a_process_waits_for_lines_that_threads_have_collected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let sink = Sink::start("last block", Target::Fd(appending(&path)), quick()).unwrap();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let sink = &sink;
        scope.spawn(move || {
            blocks::collect_here();
            sink.put_line(|out| out.extend_from_slice(&line(0, 0)));
            tell.send(()).unwrap();
            // Its turn takes a while.
            thread::sleep(Duration::from_millis(100));
            blocks::give();
        });
        told.recv().unwrap();
        blocks::wait_until_given(SOON);
        assert!(sink.shutdown(SOON));
        assert_eq!(counted(&fs::read(&path).unwrap(), 1), [1]);
    });
}

#[test]
fn lines_of_a_block_that_has_no_room_are_counted_one_by_one() {
    let sink = Sink::start(
        "block without room",
        Target::Fd(
            OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .unwrap()
                .into(),
        ),
        Options {
            limit: 10_000,
            ..quick()
        },
    )
    .unwrap();
    thread::scope(|scope| {
        let sink = &sink;
        scope.spawn(move || {
            blocks::collect_here();
            (0..1_000).for_each(|_| sink.put_line(|out| out.extend_from_slice(&[b'x'; 99])));
            (0..1_000).for_each(|_| sink.put_line(|out| out.extend_from_slice(b"a short line\n")));
        });
    });
    let lost = sink.lost();
    assert!(lost > 0 && lost <= 1_000, "{lost}");
}
