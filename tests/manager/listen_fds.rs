//! Listening sockets that a service manager opens before weir starts (sd_listen_fds(3)), with systemd's own program for tests.

use super::*;

/// The words that run weir under systemd-socket-activate with these sockets.
fn activated(addresses: &[String], names: &str) -> Vec<String> {
    let mut words = vec!["systemd-socket-activate".to_owned()];
    words.extend(
        addresses
            .iter()
            .flat_map(|address| ["-l".to_owned(), address.clone()]),
    );
    words.push(format!("--fdname={names}"));
    words
}

fn with_sockets(site: &Setup, addresses: &[String], names: &str) -> Setup {
    let words = activated(addresses, names);
    site.clone()
        .under(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn over_unix(path: &std::path::Path) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(b"GET /a.txt HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn sockets_of_the_service_manager_are_used_by_address_and_outlive_reloads_and_upgrades() {
    let site = with_unix_listener(site_without_pool().admin());
    let unix = site.path("weir.sock");
    let addresses = [site.address().to_string(), unix.display().to_string()];
    let site = with_sockets(&site, &addresses, "a:b");
    let weir = site.start();
    let inodes = inodes_of_listeners(weir.address());
    assert_eq!(inodes.len(), 1);
    for what in ["start", "reload", "upgrade"] {
        if what != "start" {
            let output = weir.command(&[what]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        assert_eq!(weir.get("/a.txt").expect(200).text(), "hello\n");
        assert!(over_unix(&unix).ends_with("hello\n"), "{what}");
        assert_eq!(inodes_of_listeners(weir.address()), inodes, "{what}");
    }
    drop(weir);
    assert!(unix.exists(), "the service manager has made it");
}

#[test]
fn a_socket_with_the_name_of_a_listener_is_used_and_others_are_named() {
    let other = weir_test::free_address();
    let more = weir_test::free_address();
    let site = site_without_pool();
    let written = site
        .toml()
        .replace(&site.address().to_string(), &other.to_string());
    let addresses = [site.address().to_string(), more.to_string()];
    let site = with_sockets(&site, &addresses, "web:unknown");
    let weir = site.start_toml(&written);
    assert_eq!(weir.get("/a.txt").expect(200).text(), "hello\n");
    weir.log_line(&format!(
        "gave a socket \"unknown\" on {more}, which no listener has"
    ));
    assert!(TcpStream::connect(other).is_err());
}

#[test]
fn a_unix_socket_with_the_name_of_a_tcp_listener_is_refused() {
    let site = site_without_pool();
    let unix = site.path("a.sock");
    let given = with_sockets(&site, &[unix.display().to_string()], "web");
    // The program waits for the first connection.
    let caller = std::thread::spawn(move || {
        wait_until("the socket is there", || UnixStream::connect(&unix).is_ok());
    });
    let (status, said) = given.start_in_vain();
    caller.join().unwrap();
    assert_eq!(status.code(), Some(78), "{said}");
    assert!(
        said.contains("gave a socket on unix:") && said.contains("FileDescriptorName"),
        "{said}"
    );
}
