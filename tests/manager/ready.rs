//! "Ready" means that no new client reaches the configuration before.

use std::{
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use weir_test::versions::installed;

use super::{service_manager::Service, *};

/// Set when it is dropped.
struct Done(Arc<AtomicBool>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// What a new client gets of `/a.txt`.
fn answer(mut stream: impl Read + Write) -> String {
    stream.write_all(b"GET /a.txt HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").expect("an answer");
    body.to_owned()
}

#[test]
fn a_client_that_connects_after_ready_is_never_answered_by_the_old_configuration() {
    let site = installed(with_unix_listener(site_without_pool().admin()))
        .server("threads = 2\nmax_old_generations = 50");
    let (address, path) = (site.address(), site.path("weir.sock"));
    let service = Service::start(&site);
    // The process that serves, once it is ready.
    let ready = || -> u32 {
        let message = service.hear(|line| line == "READY=1");
        let mut lines = message.lines();
        let main = lines.find_map(|line| line.strip_prefix("MAINPID="));
        main.expect("a process").parse().unwrap()
    };
    let mut main = ready();
    let done = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        // Also if it fails.
        let _end = Done(done.clone());
        for _ in 0..3 {
            // Clients that come all the time: the old gateway's queues are not empty when it stops accepting.
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    answer(TcpStream::connect(address).unwrap());
                }
            });
        }
        for n in 0..30 {
            let folder = site.path(&format!("other/{n}"));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("a.txt"), n.to_string()).unwrap();
            let root = format!("root = \"{}\"", folder.display());
            site.clone().site(&root).write_toml();
            match n % 10 {
                9 => assert!(service.command("upgrade")),
                _ => signal(main, Signal::HUP),
            }
            main = ready();
            if n % 10 == 9 {
                // First the old one, then the new one says so.
                main = ready();
            }
            for _ in 0..6 {
                assert_eq!(answer(TcpStream::connect(address).unwrap()), n.to_string());
                assert_eq!(answer(UnixStream::connect(&path).unwrap()), n.to_string());
            }
        }
    });
}
