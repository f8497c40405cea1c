//! An invented machine in memory, and how PHP-FPM's configuration is translated on it. The fuzz targets use it, too.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use weir_config::{
    Checked, Environment,
    fpm::{self, Diagnostics, Message, Options, Start, System, User},
    read, to_toml,
};

/// A machine in memory: files, folders that all begin with /srv or are /, and the users shop and root.
#[derive(Default)]
pub struct Paper {
    files: HashMap<String, Vec<u8>>,
    /// The user who asks is not root.
    pub ordinary: bool,
}

impl Paper {
    /// A machine with this php-fpm.conf.
    pub fn with(text: impl AsRef<[u8]>) -> Self {
        let mut paper = Self::default();
        paper.add("/etc/php/8.2/fpm/php-fpm.conf", text);
        paper
    }

    /// Adds a file.
    pub fn add(&mut self, path: &str, text: impl AsRef<[u8]>) {
        self.files.insert(path.to_owned(), text.as_ref().to_vec());
    }
}

impl System for Paper {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let file = self.files.get(path).cloned();
        file.ok_or_else(|| io::Error::from_raw_os_error(2))
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>, i32> {
        let (before, after) = pattern.split_once('*').unwrap_or((pattern, ""));
        let matches = |path: &&String| {
            path.starts_with(before)
                && path.ends_with(after)
                && (pattern.contains('*') || *path == pattern)
        };
        let mut found: Vec<String> = self.files.keys().filter(matches).cloned().collect();
        found.sort();
        Ok(found)
    }

    fn is_folder(&self, path: &str) -> bool {
        path.starts_with("/srv") || path == "/"
    }

    fn try_log(&self, path: &str) -> io::Result<()> {
        match path.is_empty() || path.ends_with('/') {
            true => Err(io::Error::from_raw_os_error(2)),
            false => Ok(()),
        }
    }

    fn variable(&self, name: &str) -> Option<String> {
        (name == "HOST").then(|| "shop.example".to_owned())
    }

    fn raises_limits(&self) -> bool {
        true
    }

    fn is_root(&self) -> bool {
        !self.ordinary
    }

    fn user(&self, name: &str) -> Option<User> {
        let user = |uid, home: &str| User {
            name: name.to_owned(),
            uid,
            gid: uid,
            home: home.to_owned(),
        };
        match name {
            "shop" => Some(user(1000, "/srv/shop")),
            "root" | "0" => Some(user(0, "/")),
            _ => None,
        }
    }

    fn current_user(&self) -> Option<User> {
        self.user("shop")
    }

    fn group(&self, name: &str) -> Option<u32> {
        match name {
            "shop" => Some(1000),
            number => number.parse().ok(),
        }
    }

    fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        match host {
            "localhost" => Ok(vec![Ipv4Addr::LOCALHOST.into()]),
            "both" | "*" => Ok(vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()]),
            "moved" => Ok(vec![
                Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
                Ipv4Addr::new(192, 0, 2, 1).into(),
                Ipv4Addr::LOCALHOST.into(),
                Ipv6Addr::LOCALHOST.into(),
            ]),
            _ => Err("Name or service not known".to_owned()),
        }
    }

    fn try_listen(&self, address: SocketAddr) -> io::Result<()> {
        const EADDRNOTAVAIL: i32 = 99;
        const EAFNOSUPPORT: i32 = 97;
        match address.port() {
            // As on a machine without IPv6.
            9797 if address.is_ipv6() => Err(io::Error::from_raw_os_error(EAFNOSUPPORT)),
            _ if address.ip().is_loopback() || address.ip().is_unspecified() => Ok(()),
            _ => Err(io::Error::from_raw_os_error(EADDRNOTAVAIL)),
        }
    }
}

/// No options on the command line.
pub fn options() -> Options {
    Options {
        php: (8, 2),
        prefix: None,
        file: None,
        pid: None,
        daemonize: None,
        run_as_root: false,
    }
}

/// Does everything that a start does except the start itself. Returns the text of weir.toml, what it means, and the
/// messages.
pub fn translate_as(
    paper: &Paper,
    options: &Options,
    start: &Start,
) -> Result<(String, Checked, Vec<Message>), Vec<Message>> {
    let mut said = Diagnostics::default();
    let fpm = fpm::read(options, paper, &mut said).map_err(|_| said.messages.clone())?;
    fpm::test(&fpm, paper, &mut said).map_err(|_| said.messages.clone())?;
    fpm::start(&fpm, options, paper, &mut said).map_err(|_| said.messages.clone())?;
    assert!(fpm::dump(&fpm).len() > 10);
    let translated = fpm::translate(&fpm, options, start, paper)?;
    said.messages.extend(translated.said);
    let environment = Environment {
        folder: "/".into(),
        cores: 2,
        memory: 4 << 30,
        open_files: 1 << 16,
    };
    match read("made of php-fpm.conf", &translated.text, &environment) {
        Ok(checked) => Ok((translated.text, checked, said.messages)),
        // weir refuses control characters, PHP-FPM accepts them. Nobody uses them on purpose.
        Err(wrong) if wrong.to_string().contains("control characters") => {
            said.messages.push(Message {
                level: None,
                text: wrong.to_string(),
            });
            Err(said.messages)
        }
        Err(wrong) => panic!("{}\n{wrong}", translated.text),
    }
}

/// Any text is either refused with a reason, or it has a meaning that stays the same when it is printed and read again.
pub fn look_at(text: &[u8]) {
    match translate_as(&Paper::with(text), &options(), &Start::default()) {
        Err(said) => assert!(!said.is_empty()),
        Ok((made, checked, _)) => {
            let printed = to_toml(&checked.config);
            let environment = Environment {
                folder: "/".into(),
                cores: 2,
                memory: 4 << 30,
                open_files: 1 << 16,
            };
            let again = read("printed", &printed, &environment);
            let again = again.unwrap_or_else(|wrong| panic!("{made}\n{printed}\n{wrong}"));
            assert_eq!(again.config, checked.config, "{made}\n{printed}");
        }
    }
}
