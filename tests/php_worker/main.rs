//! Tests weir-php alone: the real program. The tests speak to it as the manager and the gateway do.

mod answers;
mod disabled;
mod fpm;
mod hosts;
mod ini;
mod life;
mod like_fpm;
mod programs;
mod stream;
mod support;
mod trace;
mod workers;

use support::*;

#[test]
fn a_script_is_answered_and_the_worker_is_ready_again() {
    let site = Scripts::new();
    site.script("hello.php", "<?php echo 'hello ', $_GET['to'];");
    let master = Master::start(&site.config());
    let mut worker = master.worker();
    for to in ["you", "all"] {
        let answer = worker.get(&site, &format!("/hello.php?to={to}"));
        assert_eq!(answer.body(), format!("hello {to}"));
        assert_eq!(answer.status(), "");
        assert_eq!(answer.header("Content-type"), "text/html; charset=UTF-8");
        assert_eq!(answer.stderr, "");
    }
}

#[test]
fn a_worker_whose_stream_ends_ends_with_code_0() {
    let site = Scripts::new();
    let master = Master::start(&site.config());
    let worker = master.worker();
    let (number, pid) = (worker.number, worker.pid);
    drop(worker);
    assert_eq!(
        master.told(),
        Told::Exited {
            number,
            pid,
            end: End::Code(0)
        }
    );
}

#[test]
fn workers_die_with_their_master_and_it_with_its_manager() {
    let site = Scripts::new();
    let mut master = Master::start(&site.config());
    let workers = [master.worker(), master.worker()];
    master.hang_up();
    assert_eq!(master.wait(), Some(0));
    assert!(workers.iter().all(|worker| !is_alive(worker.pid)));

    let mut master = Master::start(&site.config());
    let worker = master.worker();
    kill(master.pid());
    master.wait();
    wait_until("the worker is gone", || !is_alive(worker.pid));
}

#[test]
fn bytes_that_are_no_fastcgi_end_the_worker_with_a_message() {
    let site = Scripts::new();
    let master = Master::start(&site.config());
    let mut worker = master.worker();
    worker.write(b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(master.end_of(&worker), End::Code(65));
    master.said("the gateway sent invalid FastCGI data");
}
