//! The workers' own unix socket: it exists without configuration, only workers can use it, and weir knows which pool
//! calls.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use weir_test::http::encode;
use weir_test::oddity::Oddity;
use weir_test::php::own;
use weir_test::sidecar::{Outward, Sidecar};
use weir_test::weir::{mode, request, write};
use weir_test::{Client, LIMIT, Setup, goes_on_as_root, is_root, wait_until};

/// Waits for `gate` if it is given, then calls as `how` says, and prints the status and the result.
const CALL: &str = "<?php
if (isset($_GET['gate'])) {
    touch($_GET['gate'] . '.here');
    while (!file_exists($_GET['gate'])) { usleep(5000); clearstatcache(); }
}
$over_unix = $_GET['how'] === 'unix';
$call = curl_init(($over_unix ? 'http://weir' : getenv('WEIR_EGRESS')) . '/' . $_GET['target']);
if ($over_unix) curl_setopt($call, CURLOPT_UNIX_SOCKET_PATH, getenv('WEIR_EGRESS_SOCKET'));
if (isset($_GET['token'])) {
    curl_setopt($call, CURLOPT_HTTPHEADER, ['Proxy-Authorization: Bearer ' . $_GET['token']]);
}
curl_setopt($call, CURLOPT_RETURNTRANSFER, true);
$text = curl_exec($call);
echo curl_getinfo($call, CURLINFO_RESPONSE_CODE), ' ', $text;
";

/// Prints the path of the socket.
const WHERE: &str = "<?php echo getenv('WEIR_EGRESS_SOCKET');";

/// Two pools of one user, `app` and `blog`, for the paths below `/app/` and `/blog/`. If the tests do not run as root,
/// the sockets are in the test's folder.
fn two_pools(lines: &str) -> Setup {
    let dumpable = match is_root() {
        true => "",
        false => "process_dumpable = true\n",
    };
    let pool = own(2, &format!("{dumpable}{lines}"));
    let setup = Setup::new()
        .file("app/call.php", CALL)
        .file("blog/call.php", CALL)
        .file("app/where.php", WHERE);
    let runtime = setup.folder().join("runtime");
    fs::create_dir(&runtime).expect("mkdir");
    let variable = format!("XDG_RUNTIME_DIR={}", runtime.display());
    setup.under(&["env", &variable]).pool(&pool).more(&format!(
        "[[site.main.route]]\npath = \"/blog/*\"\npool = \"blog\"\n[pool.blog]\n{pool}"
    ))
}

/// A host that only the pool `app` may call.
fn for_app(origin: &Oddity) -> Outward {
    let port = origin.address().port();
    let outward = Outward::new().allow(&format!(
        "{{ host = \"http://keyed.test:{port}\", pools = [\"app\"], addresses = [\"127.0.0.0/8\"] }}"
    ));
    let addresses = vec![origin.address().ip()];
    let says = weir_test::dns::Says::Addresses(addresses, 60);
    outward.dns().says("keyed.test", says);
    outward
}

fn ask(sidecar: &Sidecar, origin: &Oddity, pool: &str, more: &str) -> String {
    let target = encode(&format!("keyed.test:{}/x", origin.address().port()));
    let script = format!("/{pool}/call.php?target={target}&{more}");
    sidecar.weir.get(&script).expect(200).text()
}

fn own_socket(sidecar: &Sidecar) -> PathBuf {
    sidecar.weir.get("/app/where.php").expect(200).text().into()
}

fn origin() -> Oddity {
    Oddity::plain(|talk| talk.answer_all("hello"))
}

#[test]
fn workers_have_a_socket_of_their_own_by_which_their_pool_is_known() {
    let origin = origin();
    let mut sidecar = for_app(&origin).start_in(two_pools(""));
    let socket = own_socket(&sidecar);
    assert_eq!(ask(&sidecar, &origin, "app", "how=unix"), "200 hello");
    assert!(ask(&sidecar, &origin, "blog", "how=unix").starts_with("403 "));
    let line = super::trouble::logged(&sidecar, "/x", 1).remove(0);
    assert_eq!(
        (&line["pool"], &line["caller"]),
        (&"app".into(), &"unix".into()),
        "{line}"
    );
    // Both pools have the same user, who owns the socket.
    let metadata = fs::symlink_metadata(&socket).expect("a socket");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    if is_root() {
        let name = socket
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let address = sidecar.address;
        assert_eq!(
            name,
            format!("egress-{}-{}.sock", address.ip(), address.port())
        );
        assert_ne!(metadata.uid(), 0);
        let stranger = Command::new("setpriv")
            .args([
                "--reuid=64999",
                "--regid=64999",
                "--clear-groups",
                "curl",
                "-sS",
                "--unix-socket",
            ])
            .arg(&socket)
            .arg("http://weir/keyed.test/")
            .output()
            .expect("setpriv");
        assert!(!stranger.status.success(), "a stranger may not connect");
    }
    // The socket stays during a reload. It is removed when weir ends.
    let before = metadata.ino();
    let gateway = sidecar.weir.gateway().pid;
    sidecar.weir.signal(Signal::HUP);
    wait_until("another gateway serves", || {
        sidecar.weir.gateway().pid != gateway
    });
    assert_eq!(own_socket(&sidecar), socket);
    assert_eq!(
        fs::symlink_metadata(&socket).expect("a socket").ino(),
        before
    );
    assert_eq!(ask(&sidecar, &origin, "app", "how=unix"), "200 hello");
    sidecar.weir.stop();
    assert!(!socket.exists());
}

#[test]
fn the_workers_socket_can_be_moved_and_switched_off_and_one_in_listen_takes_its_place() {
    let origin = origin();
    let setup = two_pools("");
    let moved = setup.folder().join("moved.sock");
    let listed = setup.folder().join("listed.sock");
    let (line, toml) = (
        format!("socket = \"unix:{}\"", moved.display()),
        "[egress]\n",
    );
    let sidecar = for_app(&origin).lines(&line).start_in(setup);
    assert_eq!(own_socket(&sidecar), moved);
    assert_eq!(ask(&sidecar, &origin, "app", "how=unix"), "200 hello");

    let reload = |text: String| {
        fs::write(sidecar.file("weir.toml"), text).expect("weir.toml");
        let before = sidecar.weir.gateway().pid;
        sidecar.weir.signal(Signal::HUP);
        wait_until("another gateway serves", || {
            sidecar.weir.gateway().pid != before
        });
    };
    let text = sidecar.weir.read("weir.toml");
    reload(text.replace(&line, "socket = \"off\""));
    wait_until("it is gone", || !moved.exists());
    wait_until("workers know", || own_socket(&sidecar) == Path::new(""));

    let listen = format!("\"unix:{}\"", listed.display());
    let tcp = format!("listen = [\"{}\"", sidecar.address);
    assert!(text.contains(toml) && text.contains(&tcp));
    reload(
        text.replace(&line, "")
            .replace(&tcp, &format!("{tcp}, {listen}")),
    );
    wait_until("workers know", || own_socket(&sidecar) == listed);
    assert_eq!(ask(&sidecar, &origin, "app", "how=unix"), "200 hello");
}

#[test]
fn the_workers_socket_asks_for_the_token_as_tcp_does() {
    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    let origin = origin();
    let setup = two_pools("");
    let token = setup.folder().join("egress.token");
    write(&token, TOKEN.as_bytes());
    mode(&token, 0o600);
    let line = format!("token_file = \"{}\"", token.display());
    let sidecar = for_app(&origin).lines(&line).start_in(setup);
    for how in ["unix", "tcp"] {
        let without = ask(&sidecar, &origin, "app", &format!("how={how}"));
        assert!(without.starts_with("407 "), "{how}: {without}");
        let with = ask(
            &sidecar,
            &origin,
            "app",
            &format!("how={how}&token={TOKEN}"),
        );
        assert_eq!(with, "200 hello", "{how}");
    }
}

/// The script was started by workers of a gateway that has no listening socket any more. Both pools have the same user,
/// so the user does not identify the script's pool.
#[test]
fn a_script_that_runs_on_after_a_reload_calls_for_its_pool() {
    let origin = origin();
    let sidecar = for_app(&origin).start_in(two_pools(""));
    let cases = [
        ("app", "unix"),
        ("app", "tcp"),
        ("blog", "unix"),
        ("blog", "tcp"),
    ];
    let gate = |(pool, how): (&str, &str)| sidecar.file("spool").join(format!("gate-{pool}-{how}"));
    std::thread::scope(|scope| {
        let callers = cases.map(|case| {
            let (pool, how) = case;
            let more = format!(
                "how={how}&gate={}",
                encode(&gate(case).display().to_string())
            );
            let (weir, port) = (sidecar.weir.address(), origin.address().port());
            scope.spawn(move || {
                let target = encode(&format!("keyed.test:{port}/x"));
                let mut client = Client::connect(weir).patient(LIMIT * 2);
                let script = format!("/{pool}/call.php?target={target}&{more}");
                client.send(request("GET", &script, &[], b""));
                client.response().expect(200).text()
            })
        });
        let is_here = |case| {
            let mut here = gate(case).into_os_string();
            here.push(".here");
            Path::new(&here).exists()
        };
        wait_until("all run", || cases.into_iter().all(is_here));
        sidecar.weir.signal(Signal::HUP);
        sidecar.weir.wait_for_error(&["reloaded"]);
        for case in cases {
            fs::write(gate(case), "").expect("the gate");
        }
        for ((pool, how), caller) in cases.into_iter().zip(callers) {
            let said = caller.join().expect("an answer");
            match pool {
                "app" => assert_eq!(said, "200 hello", "{pool} {how}"),
                _ => assert!(said.starts_with("403 "), "{pool} {how}: {said}"),
            }
        }
    });
    sidecar.weir.wait_for_error(&["pool blog calls"]);
}

/// A chroot cannot reach the usual socket: weir reports this, and the pool has no socket.
#[test]
fn a_pool_that_is_locked_in_is_told_that_it_cannot_reach_the_socket() {
    if !goes_on_as_root() {
        return;
    }
    let origin = origin();
    let setup = Setup::new();
    let root = setup.folder().join("root");
    let lines = own(1, &format!("chroot = \"{}\"", root.display()));
    let setup = setup.file("where.php", WHERE).pool(&lines);
    let sidecar = Outward::new()
        .plain_name("api.test", origin.address())
        .start_in(setup);
    sidecar
        .weir
        .wait_for_error(&["[pool.app]", "cannot call over unix:", "chroot"]);
    assert_eq!(sidecar.weir.get("/where.php").expect(200).text(), "");
}
