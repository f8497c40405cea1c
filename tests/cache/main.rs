//! The cache of pages with weir's own PHP: what is stored and for whom, what a crowd gets, what edits outdate, and what is sent while
//! the application cannot answer.

mod answers;
mod crowd;
mod disk;
mod http_cache_tests;
mod nodes;
mod operators;
mod personal;
mod purges;
mod stale;

use weir_test::{Response, Setup, Weir, php};

/// A site with a cache, and these workers. `cache`: the lines of `[site.main.cache]`.
fn setup(workers: usize, cache: &str) -> Setup {
    let setup = Setup::new();
    let runs = setup.path("spool/runs");
    setup
        .file("page.php", page(&runs.display().to_string()))
        .site(cache)
        .pool(&php::own(workers, ""))
}

/// A script whose query says what it does: `h[]=Field: value`, `status=N`, `body=text` (or so many `bytes`), `gate=FILE` (waits until
/// there is one). Each run writes the page's name to a file; its body has the number of the run.
fn page(runs: &str) -> String {
    format!(
        r#"<?php
$name = $_GET['p'] ?? '';
file_put_contents('{runs}', "$name\n", FILE_APPEND);
$run = count(array_keys(file('{runs}', FILE_IGNORE_NEW_LINES), $name, true));
if (isset($_GET['gate'])) {{ while (!file_exists($_GET['gate'])) {{ usleep(2000); clearstatcache(); }} }}
if (isset($_GET['dies']) && file_exists($_GET['dies'])) {{ http_response_code(503); exit; }}
http_response_code((int) ($_GET['status'] ?? 200));
header('Content-Type: text/plain');
foreach ($_GET['h'] ?? [] as $field) {{ header($field, false); }}
if (isset($_GET['etag'])) {{
    header("ETag: \"{{$_GET['etag']}}\"");
    if (($_SERVER['HTTP_IF_NONE_MATCH'] ?? '') === "\"{{$_GET['etag']}}\"") {{ http_response_code(304); exit; }}
}}
echo isset($_GET['bytes']) ? str_repeat('0123456789', intdiv($_GET['bytes'], 10)) : "run $run";
foreach ($_GET['show'] ?? [] as $name) {{ echo "\n$name=", $_SERVER[$name] ?? ''; }}
"#
    )
}

/// The URL of a page that may be stored for a minute.
fn fresh(name: &str) -> String {
    with(name, &["Cache-Control: max-age=60"])
}

/// The URL of a page with these fields.
fn with(name: &str, fields: &[&str]) -> String {
    let fields = fields.iter();
    let fields = fields.map(|field| format!("&h[]={}", weir_test::http::encode(field)));
    format!("/page.php?p={name}{}", fields.collect::<String>())
}

/// How often the script of this page has run.
fn runs(weir: &Weir, name: &str) -> usize {
    let text = std::fs::read_to_string(weir.scratch("runs")).unwrap_or_default();
    text.lines().filter(|line| *line == name).count()
}

/// What the cache says that it did.
fn said(response: &Response) -> &str {
    response.header("cache-status").unwrap_or_default()
}
