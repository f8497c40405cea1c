//! Which server gets a request.

use std::collections::BTreeMap;

use super::{Load, fpms, plain, pool, pool_status, site, states, tally};
use weir_test::{Client, Responder, Setup, Weir, wait_until};

/// Three PHP-FPMs with two children each, and these lines of the pool.
fn three(lines: &str, test: impl FnOnce(&Weir)) {
    let setup = site();
    let fpms = fpms(&setup, &[2, 2, 2]);
    let pool = pool(&plain(&fpms), &format!("{lines}\nqueue.maxconn = 6"));
    let mut weir = setup.pool(&pool).start();
    test(&weir);
    weir.stop();
}

fn counts<const N: usize>(all: [(&str, usize); N]) -> BTreeMap<String, usize> {
    all.map(|(name, count)| (name.to_owned(), count)).into()
}

#[test]
fn roundrobin_takes_turns_by_weight() {
    let setup = site();
    let fpms = fpms(&setup, &[2, 2, 2]);
    let mut servers = plain(&fpms);
    servers[0] = format!("{{ address = {}, weight = 200 }}", servers[0]);
    let pool = pool(&servers, "balance = \"roundrobin\"\nqueue.maxconn = 6");
    let weir = setup.pool(&pool).start();
    assert_eq!(
        tally(&weir, "/who.php", 40),
        counts([("a", 20), ("b", 10), ("c", 10)])
    );
}

#[test]
fn leastconn_gives_the_next_to_the_least_busy() {
    three("", |weir| {
        assert_eq!(
            tally(weir, "/who.php", 30),
            counts([("a", 10), ("b", 10), ("c", 10)])
        );
        let mut clients: Vec<Client> = (0..6)
            .map(|_| {
                let mut client = weir.client();
                client.send("GET /sleep.php?ms=300 HTTP/1.1\r\nHost: a\r\n\r\n");
                client
            })
            .collect();
        let mut seen = BTreeMap::new();
        for client in &mut clients {
            *seen
                .entry(client.response().expect(200).text())
                .or_insert(0) += 1;
        }
        assert_eq!(seen, counts([("a", 2), ("b", 2), ("c", 2)]));
    });
}

#[test]
fn first_fills_one_server_after_the_other() {
    three("balance = \"first\"", |weir| {
        assert_eq!(tally(weir, "/who.php", 10), counts([("a", 10)]));
        // No server gets more than its share of the limit.
        let load = Load::start(weir, 3, "/sleep.php?ms=50");
        wait_until("the second is used", || {
            pool_status(weir)["servers"][1]["requests"].as_u64() > Some(5)
        });
        assert!(load.end().iter().all(|(status, _)| *status == 200));
        let status = pool_status(weir);
        assert_eq!(status["servers"][2]["requests"], 0, "{status:#}");
    });
}

#[test]
fn random_uses_all() {
    three("balance = \"random\"", |weir| {
        let seen = tally(weir, "/who.php", 60);
        assert_eq!(seen.len(), 3, "{seen:?}");
    });
}

#[test]
fn hash_stays_with_its_server() {
    let lines = "balance = \"hash\"\nhash_by = \"cookie:SESSION\"\nfail_timeout = \"1s\"";
    let setup = site();
    let mut fpms = fpms(&setup, &[2, 2, 2]);
    let pool = pool(&plain(&fpms), &format!("{lines}\nqueue.maxconn = 6"));
    let weir = setup.pool(&pool).start();
    let home = |session: usize| {
        let cookie = format!("theme=dark; SESSION={session}");
        let response = weir.request("GET", "/who.php", &[("Cookie", &cookie)], b"");
        response.expect(200).text()
    };
    let homes: Vec<String> = (0..30).map(home).collect();
    let used: std::collections::BTreeSet<&String> = homes.iter().collect();
    assert_eq!(used.len(), 3, "{homes:?}");
    assert_eq!((0..30).map(home).collect::<Vec<_>>(), homes);
    // One server dies: its sessions move to others, and the other sessions stay.
    drop(fpms.remove(1));
    for (session, before) in homes.iter().enumerate() {
        let now = home(session);
        assert!(
            now == *before || *before == "b",
            "{session}: {before} {now}"
        );
        assert_ne!(now, "b");
    }
    let back = super::fpm_again(&weir, 'b', 2);
    wait_until("it is up", || {
        weir.get("/who.php").expect(200);
        states(&weir)[1] == "up"
    });
    assert_eq!((0..30).map(home).collect::<Vec<_>>(), homes);
    drop(back);
}

#[test]
fn a_hot_key_spreads_within_its_bound() {
    let setup = Setup::new().file("run.php", "");
    let (servers, gate) = Responder::gated_servers(4);
    let names: Vec<String> = servers
        .iter()
        .map(|server| format!("\"{}\"", server.server()))
        .collect();
    let lines =
        "balance = \"hash\"\nhash_by = \"uri\"\nhash_balance_factor = 125\nqueue.maxconn = 40";
    let weir = setup.pool(&pool(&names, lines)).start();
    let mut clients: Vec<Client> = (0..8)
        .map(|number| {
            let mut client = weir.client();
            client.send(format!("GET /run.php?{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
            client
        })
        .collect();
    let running = || servers.iter().map(Responder::running).collect::<Vec<_>>();
    wait_until("all are at work", || running().iter().sum::<usize>() == 8);
    // The bound of eight requests: 125 % of a quarter, rounded up.
    assert!(running().iter().all(|count| *count <= 3), "{:?}", running());
    gate.open();
    for client in &mut clients {
        client.response().expect(200);
    }
}

#[test]
fn a_server_without_weight_gets_nothing_and_backups_wait() {
    let setup = site();
    let fpms = fpms(&setup, &[2, 2, 2]);
    let mut servers = plain(&fpms);
    servers[0] = format!("{{ address = {}, weight = 0 }}", servers[0]);
    servers[2] = format!("{{ address = {}, backup = true }}", servers[2]);
    let pool = pool(&servers, "queue.maxconn = 6");
    let weir = setup.pool(&pool).start();
    assert_eq!(tally(&weir, "/who.php", 10), counts([("b", 10)]));
    assert_eq!(states(&weir), ["drained", "up", "backup"]);
}
