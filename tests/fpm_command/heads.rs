//! Heads that scripts make in any way that PHP lets them: to the byte what php-fpm sends, and the same pages of nginx and
//! Apache in front of both.

use std::fmt::Write;

use weir_test::front::{Front, Params, WebServer};
use weir_test::{Chance, Client};

use crate::{
    starts::configuration,
    support::{PHP_FPM, Place, Running},
};

/// Does what the query says: a letter and its argument in hexadecimal digits, again and again.
const SCRIPT: &str = r#"<?php
foreach (explode('.', $_SERVER['QUERY_STRING']) as $step) {
    $argument = hex2bin(substr($step, 1));
    switch ($step[0]) {
        case 'h': @header($argument, false); break;
        case 'H': @header($argument); break;
        case 'c': @header('X-Code: 1', true, (int)$argument); break;
        case 's': http_response_code((int)$argument); break;
        case 'r': header_remove($argument); break;
        case 'R': header_remove(); break;
        case 'm': ini_set('default_mimetype', $argument); break;
        case 'k': setcookie('name', $argument); break;
        case 'b': echo $argument; break;
        case 'n': for ($n = 0; $n < (int)$argument; $n++) header("X-Many-$n: " . str_repeat("v", 90), false); break;
        case 'l': echo str_repeat('l', (int)$argument); break;
        case 'f': flush(); break;
        case 'z': fastcgi_finish_request(); break;
        case 'x': exit;
    }
}
"#;

const HEADERS: &[&str] = &[
    "X-One: 1",
    "X-One: 2",
    "x-two:  2 ",
    "X_Under: 3",
    "Content-Type: text/html",
    "Content-Type: image/png",
    "Content-Type: text/event-stream",
    "Content-Type:",
    "Content-Length: 4",
    "Content-Length: 0",
    "Content-Length: -1",
    "Content-Length: 2, 2",
    "Content-Length:",
    "Content-Length: 1000",
    "Location: /elsewhere",
    "Location: http://elsewhere.example/",
    "Location:",
    "Status: 404 Own",
    "Status: 600",
    "Status: abc",
    "Status:",
    "HTTP/1.1 404 Gone Fishing",
    "HTTP/1.0 200 Fine",
    "HTTP/1.1 600 Six",
    "HTTP/1.1 999",
    "HTTP/1.1 103 Early",
    "HTTP/1.1 99 Low",
    "HTTP/1.1 1000 High",
    "HTTP/1.1 abc",
    "HTTP/2 418 Tea",
    "http/1.1 410 small",
    "WWW-Authenticate: Basic realm=x",
    "Transfer-Encoding: chunked",
    "Connection: close",
    "Keep-Alive: 5",
    "X-Accel-Expires: 5",
    "X-Accel-Buffering: no",
    "X-Accel-Charset: off",
    "X-Sendfile: /none",
    "Set-Cookie: a=1",
    "Set-Cookie: b=\u{1}",
    "no colon here",
    "nocolon",
    "A b: c",
    "A(b): c",
    "A\u{1}b: c",
    "\u{e9}\u{ff}: c",
    "X-Latin: \u{e9}\u{ff}",
    "X-Bell: a\u{7}b",
    "X-Del: \u{7f}",
    "X-Tab:\ta\tb",
    "X-Nul: a\0b",
    "X-Two: a\r\nX-Lines: b",
    "X-Return: a\rb",
    ": c",
    " X-Space: c",
    "\tX-Tab: c",
    "X-End: c\r\n",
    "",
    ":",
    "X-Empty:",
    "X-Colons: a:b:c",
];

const STATUSES: &[&str] = &[
    "100", "103", "199", "200", "204", "299", "304", "404", "599", "600", "999", "1000", "99", "0",
    "-5",
];

/// One step of the script.
fn step(letter: char, argument: &str) -> String {
    let mut step = String::from(letter);
    // Characters are bytes here.
    for character in argument.chars() {
        write!(step, "{:02x}", character as u8).expect("a string");
    }
    step
}

fn steps(chance: &mut Chance) -> String {
    let mut steps = Vec::new();
    if chance.below(3) == 0 {
        steps.push(step('R', ""));
        steps.push(step('m', ""));
    }
    for _ in 0..chance.below(6) {
        steps.push(match chance.below(12) {
            0..=4 => step('h', chance.of(HEADERS)),
            5..=6 => step('H', chance.of(HEADERS)),
            7 => step('c', chance.of(STATUSES)),
            8 => step('s', chance.of(STATUSES)),
            9 => step(
                'r',
                chance.of(&["Content-Type", "X-One", "X-Powered-By", "Set-Cookie"]),
            ),
            10 => step('m', chance.of(&["", "text/plain", "a b", "\u{e9}"])),
            _ => step('k', chance.of(&["", "v", "\u{1}"])),
        });
    }
    for _ in 0..chance.below(4) {
        steps.push(match chance.below(6) {
            0 | 1 => step('b', "body"),
            2 => step('b', "\r\n\r\nX: y\r\n"),
            3 => step('f', ""),
            4 => step('l', "100000"),
            _ => step('z', ""),
        });
    }
    steps.push(step('x', ""));
    steps.join(".")
}

/// Heads that chance would not make.
fn particular() -> Vec<String> {
    let large = |count: &str| [step('n', count), step('b', "body")].join(".");
    let bare = [step('R', ""), step('m', "")].join(".");
    let mut all = vec![
        large("900"),
        large("12000"),
        large("15000"),
        bare.clone(),
        format!("{bare}.{}", step('b', "body")),
        format!("{bare}.{}", step('b', "X: y\r\n\r\nbody")),
        format!("{bare}.{}", step('b', "\r\n\r\n\n")),
    ];
    for header in HEADERS {
        all.push([step('h', header), step('b', "body")].join("."));
        all.push(format!(
            "{bare}.{}.{}",
            step('h', header),
            step('b', "body")
        ));
    }
    for status in STATUSES {
        all.push([step('s', status), step('b', "body")].join("."));
    }
    all
}

/// An answer to `uri`, without what differs from time to time: the date, and where chunks end.
fn page(server: &WebServer, uri: &str) -> String {
    let mut client = Client::connect(server.address());
    client.send(format!(
        "GET {uri} HTTP/1.0\r\nHost: a\r\nConnection: close\r\n\r\n"
    ));
    let (bytes, _) = client.rest();
    // Each byte a character.
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    let lines = text.split_inclusive('\n');
    lines.filter(|line| !line.starts_with("Date: ")).collect()
}

fn short(text: &str) -> String {
    text.chars().take(600).collect()
}

#[test]
fn heads_are_passed_on_as_php_fpm_sends_them() {
    let places = [Place::new(), Place::new()];
    let programs = [PHP_FPM.clone(), places[1].weir()];
    let _running = [0, 1].map(|which| {
        places[which].write("php-fpm.conf", configuration("", ""));
        Running::start(&programs[which], &places[which], &[])
    });
    let script = places[0].write("a.php", SCRIPT);
    let sockets = [0, 1].map(|which| places[which].path("fpm.sock"));
    let folder = places[0].path("");
    let locations: String = (0..2)
        .map(|which| {
            format!(
                "location /{which}/ {{ include /etc/nginx/fastcgi_params; fastcgi_buffer_size 256k; fastcgi_buffers 4 256k;\n\
                 fastcgi_param SCRIPT_FILENAME {}; fastcgi_param REQUEST_URI /; fastcgi_param SCRIPT_NAME /a.php;\n\
                 fastcgi_pass unix:{}; }}\n",
                script.display(),
                sockets[which].display()
            )
        })
        .collect();
    let nginx = WebServer::nginx(&folder, &locations, "");
    let handlers: String = (0..2)
        .map(|which| {
            format!(
                "<LocationMatch \"^/{which}/\">\nSetHandler \"proxy:unix:{}|fcgi://pool{which}/\"\n\
                 ProxyFCGISetEnvIf \"true\" SCRIPT_FILENAME \"{}\"\n</LocationMatch>\n",
                sockets[which].display(),
                script.display()
            )
        })
        .collect();
    let apache = WebServer::apache(
        &folder,
        &format!("ProxyFCGIBackendType GENERIC\n{handlers}"),
    );
    let raw = |which: usize, query: &str| {
        let params = Params::get(&folder, &format!("/a.php?{query}"));
        let answered = Front::unix(&sockets[which]).ask(&params, b"");
        let characters = answered.stdout.iter().map(|byte| char::from(*byte));
        (characters.collect::<String>(), answered.ended)
    };
    let mut chance = Chance(15);
    let generated = (0..200).map(|_| steps(&mut chance)).collect();
    for query in [particular(), generated].concat() {
        let (fpm, weir) = (raw(0, &query), raw(1, &query));
        assert!(
            fpm == weir,
            "{query}:\n{:?}\n{:?}",
            short(&fpm.0),
            short(&weir.0)
        );
        for server in [&nginx, &apache] {
            let [fpm, weir] = [0, 1].map(|which| page(server, &format!("/{which}/a.php?{query}")));
            assert!(
                fpm == weir,
                "{query}:\n{:?}\n{:?}",
                short(&fpm),
                short(&weir)
            );
        }
    }
}
