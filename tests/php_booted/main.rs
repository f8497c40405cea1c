//! Applications that stay booted (`worker` of a pool of weir's own PHP): what belongs to a request, what stays, and what
//! happens when the application or its process fails.

mod edges;
mod failures;
mod life;
mod requests;
mod state;
mod zygote;

use weir_test::{Response, Setup, Weir, php};

/// A site whose application stays booted: `code` are the functions that a request may call by its path, as the body of a
/// PHP array; before the loop, `boot` runs once.
fn booted(lines: &str, boot: &str, code: &str) -> Setup {
    let script = format!(
        "<?php
        $boot = getmypid();
        $count = 0;
        {boot}
        $actions = [
            'pid' => function () {{ echo getmypid(); }},
            'count' => function () use (&$count) {{ echo $count; }},
            {code}
        ];
        $handler = function () use (&$count, $actions) {{
            $count++;
            $name = trim(strtok($_SERVER['REQUEST_URI'], '?'), '/');
            isset($actions[$name]) ? $actions[$name]() : print(\"nothing named $name\");
        }};
        while (frankenphp_handle_request($handler)) {{ }}"
    );
    site(lines, &script)
}

/// A site with this script as the application. In `lines` SPOOL is a folder that its processes may write to.
fn site(lines: &str, script: &str) -> Setup {
    let setup = Setup::new();
    let worker = setup.root().join("app.php");
    let spool = setup.folder().join("spool").display().to_string();
    let lines = lines.replace("SPOOL", &spool);
    // setup/conformance.sh runs all of these tests without a zygote, too.
    let zygote = match std::env::var("WEIR_TEST_ZYGOTE") {
        Ok(value) if !lines.contains("worker_zygote") => format!("worker_zygote = {value}\n"),
        _ => String::new(),
    };
    setup
        .file("app.php", script)
        .site("fallback = \"/app.php\"")
        .pool(&format!(
            "runtime = \"php\"\npm = \"static\"\n{}worker = \"{}\"\n{zygote}{lines}",
            php::identity(),
            worker.display()
        ))
}

/// The text of an answer with status 200.
#[track_caller]
fn text(weir: &Weir, path: &str) -> String {
    weir.get(path).expect(200).text()
}

#[track_caller]
fn post(weir: &Weir, path: &str, kind: &str, body: &[u8]) -> Response {
    weir.request("POST", path, &[("Content-Type", kind)], body)
}

/// The first pool in weir's status.
fn pool(weir: &Weir) -> serde_json::Value {
    weir.status()["pools"][0].clone()
}
