//! A real browser for tests: it opens a page, runs JavaScript there, and returns the result.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::LIMIT;
use crate::process::wait;

/// What the browser says of a page that it opens once, with these options.
pub struct Rendered {
    /// Its output: the page, with `--dump-dom`.
    pub output: String,
    /// Its messages: also what scripts write to the console, with `--enable-logging=stderr`.
    pub errors: String,
}

/// Opens `url` once. The browser writes its files to `folder`. Fails if it does not end well.
#[track_caller]
pub fn render(folder: &Path, url: &str, options: &[&str]) -> Rendered {
    let (output, errors) = (folder.join("page.out"), folder.join("browser.err"));
    let mut child = Command::new("chromium-headless-shell")
        .args([
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--no-proxy-server",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ))
        .args(options)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(File::create(&output).expect("a file"))
        .stderr(File::create(&errors).expect("a file"))
        .spawn()
        .expect("chromium-headless-shell");
    let status = wait(&mut child, LIMIT + Duration::from_secs(30));
    if status.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let read = |path| {
        let bytes = fs::read(path).expect("what the browser wrote");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (output, errors) = (read(output), read(errors));
    assert!(
        status.is_some_and(|status| status.success()),
        "{status:?}: {errors}"
    );
    Rendered { output, errors }
}

/// A browser with one page.
pub struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    session: String,
    next: u64,
}

impl Browser {
    /// Opens `url`. The browser writes its files to `folder`.
    pub fn open(folder: &Path, url: &str) -> Browser {
        Browser::open_with(folder, url, &[])
    }

    /// As [`Browser::open`], with more arguments for the browser.
    pub fn open_with(folder: &Path, url: &str, arguments: &[&str]) -> Browser {
        let (to, from) = (folder.join("to-browser"), folder.join("from-browser"));
        for pipe in [&to, &from] {
            let made = Command::new("mkfifo").arg(pipe).status().expect("mkfifo");
            assert!(made.success());
        }
        // The DevTools protocol uses descriptors 3 and 4. Each message is a JSON text followed by a NUL.
        let script = "to=$1 from=$2 profile=$3; shift 3; exec timeout 120 chromium-headless-shell --no-sandbox \
                      --disable-gpu --disable-dev-shm-usage --no-first-run --no-proxy-server --remote-debugging-pipe \
                      --window-size=1000,1400 \"--user-data-dir=$profile\" \"$@\" 3<\"$to\" 4>\"$from\"";
        let child = Command::new("sh")
            .args(["-c", script, "sh"])
            .args([&to, &from, &folder.join("profile-driven")])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.join("driven.err")).expect("a file"))
            .spawn()
            .expect("sh");
        let to = OpenOptions::new().write(true).open(to).expect("the way in");
        let from = BufReader::new(File::open(from).expect("the way out"));
        let mut browser = Browser {
            child,
            to,
            from,
            session: String::new(),
            next: 1,
        };
        let target = browser.ask("Target.createTarget", json!({ "url": url }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.ask("Target.attachToTarget", attach);
        browser.session = attached["sessionId"]
            .as_str()
            .expect("a session")
            .to_owned();
        browser
    }

    /// The value of a JavaScript expression in the page.
    #[track_caller]
    pub fn run(&mut self, expression: &str) -> Value {
        self.try_run(expression)
            .unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// Waits until an expression is true. An expression that fails because the page is not there yet counts as false.
    #[track_caller]
    pub fn wait_until(&mut self, expression: &str) {
        super::wait_until(expression, || {
            self.try_run(expression).is_ok_and(|value| value == true)
        });
    }

    fn try_run(&mut self, expression: &str) -> Result<Value, Value> {
        let wanted = json!({ "expression": expression, "returnByValue": true });
        let answer = self.try_ask("Runtime.evaluate", wanted)?;
        match answer["exceptionDetails"].is_null() {
            true => Ok(answer["result"]["value"].clone()),
            false => Err(answer),
        }
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.try_ask(method, params)
            .unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn try_ask(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.next;
        self.next += 1;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("a browser that listens");
        loop {
            let mut bytes = Vec::new();
            self.from
                .read_until(0, &mut bytes)
                .expect("a browser that answers");
            assert_eq!(bytes.pop(), Some(0), "the browser has ended");
            let answer: Value = serde_json::from_slice(&bytes).expect("JSON");
            if answer["id"] == id {
                return match answer["error"].is_null() {
                    true => Ok(answer["result"].clone()),
                    false => Err(answer["error"].clone()),
                };
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self
            .to
            .write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        if crate::process::wait(&mut self.child, LIMIT).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
