//! Each attack on HTTP/2 ends its connection with GOAWAY and one line in the log that names the option.

use std::time::{Duration, Instant};

use weir_test::http2::{ENHANCE_YOUR_CALM, Http2};
use weir_test::{LIMIT, Responder, Setup, Weir, wait_until};

use crate::http2_attacks::{Attack, attacks};

/// How many lines of the log name this limit.
fn lines(weir: &Weir, limit: &str) -> usize {
    let said = weir.stderr();
    let of_limit =
        |line: &&str| line.contains("closed an HTTP/2 connection") && line.contains(limit);
    said.lines().filter(of_limit).count()
}

/// Sends an attack until weir ends the connection. Expects that it does so because of its limit.
#[track_caller]
fn expect_end(weir: &Weir, attack: &Attack) {
    let Attack { name, limit, .. } = attack;
    let before = lines(weir, limit);
    let mut client = Http2::connect(weir.address(), &[]);
    client.raw(&attack.begin);
    let began = Instant::now();
    let mut sent = 0;
    let mut code = None;
    while code.is_none() {
        let bytes: Vec<u8> = (sent..sent + 50).flat_map(attack.next).collect();
        sent += 50;
        if !client.try_raw(&bytes) {
            code = client.went_away();
            break;
        }
        while let Some(found) = client.next_within(Duration::from_millis(1)) {
            code = code.or(found.error());
        }
        assert!(sent < 100_000 && began.elapsed() < LIMIT, "{name}: no end");
    }
    assert_eq!(code, Some(ENHANCE_YOUR_CALM), "{name} after {sent}");
    wait_until(name, || lines(weir, limit) == before + 1);
}

#[test]
fn floods_end_their_connection_name_the_option_and_run_no_script() {
    // The number of log lines about connections in ten seconds is limited, so each weir gets a few connections.
    for attacks in attacks().chunks(7) {
        let setup = Setup::new()
            .file("text.txt", "a text\n")
            .file("run.php", "");
        let responder = Responder::unix(setup.folder(), |_, answer| answer.page("done"));
        let pool = responder.pool(2);
        let weir = setup.pool(&pool).listen("http2 = \"clear\"").start();
        for attack in attacks {
            expect_end(&weir, attack);
        }
        assert_eq!(responder.uris().len(), 0);
        assert_eq!(weir.get("/run.php").expect(200).text(), "done");
        assert_eq!(weir.get("/text.txt").expect(200).text(), "a text\n");
    }
}
