//! The keys of `[cache]`, and of `[site.NAME.cache]` and the same table of a route.

use super::{
    Default::{Absent, Value},
    Kind, Row, SIZE_MAX,
    Section::{Cache, SiteCache},
    key,
};
use crate::cache::PRESETS;

#[rustfmt::skip]
pub(super) const CACHE: &[Row] = &[
    key(&[Cache], "memory", Kind::Size { min: 1 << 20, max: 1 << 40 }, Value("\"128M\""),
        "Memory for stored answers and for the index of all of them.").called(&["keys_zone", "cache_size", "cache_mem", "malloc"]),
    key(&[Cache], "max_object", Kind::Size { min: 1, max: SIZE_MAX }, Value("\"16M\""),
        "Larger answers are not stored.").called(&["maximum_object_size", "CacheMaxFileSize", "max_obj_size"]),
    key(&[Cache], "max_objects", Kind::Count { min: 1, max: 1_000_000_000 }, Value("1000000"),
        "Maximum number of stored answers in memory."),
    key(&[Cache], "disk", Kind::Path, Absent("in memory only"),
        "Folder for stored answers, which reloads and restarts keep. It must exist, and the gateway's user must be able to write there. No other program should.")
        .called(&["fastcgi_cache_path", "proxy_cache_path", "CacheRoot"]),
    key(&[Cache], "max_disk", Kind::Size { min: 16 << 20, max: 1 << 60 }, Value("\"10G\""),
        "Maximum size of all files in `disk`.").called(&["max_size", "CacheMaxDiskSize"]),
    key(&[Cache], "file_from", Kind::Size { min: 4 << 10, max: SIZE_MAX }, Value("\"64K\""),
        "Answers from this size on are files of their own in `disk`, which are sent without a copy, and need no memory."),
    key(&[Cache], "bus", Kind::Bus, Absent("none: each node purges only its own answers"),
        "Server of Valkey or Redis through which nodes with the same sites tell each other their purges: `redis://HOST:PORT`, with `/N` for another database, or \
         `unix:PATH`. Each node stores its own answers.").called(&["redis", "valkey"]),
    key(&[Cache], "bus_user", Kind::Text, Absent("the server's default user"),
        "User of that server.").like("\"weir\""),
    key(&[Cache], "bus_password_file", Kind::Path, Absent("no password"),
        "File with the password for it. Only its owner should be able to read it. It is read at the start and at a reload.")
        .like("\"/etc/weir/bus.password\""),
    key(&[Cache], "bus_stream", Kind::Text, Value("\"weir:purges\""),
        "Name of the stream on that server. Nodes with other sites need another one."),
];

#[rustfmt::skip]
pub(super) const RULES: &[Row] = &[
    key(&[SiteCache], "preset", Kind::Word(PRESETS, &["litespeed"]), Absent("`\"headers\"`; in a route the site's rules"),
        "The rules for an application, which the other keys of the table change. `cache = \"wordpress\"` in a site or a route is short for a table with only this key. \
         `\"off\"`: nothing is stored.").called(&["mode", "type", "application"]).like("\"wordpress\""),
    key(&[SiteCache], "ttl", Kind::Duration { zero: true }, Absent("as the preset says"),
        "Lifetime of answers that say nothing about it. 0: such answers are not stored.")
        .called(&["fastcgi_cache_valid", "CacheDefaultExpire", "default_ttl", "max_age", "lifetime"]),
    key(&[SiteCache], "grace", Kind::Duration { zero: true }, Absent("as the preset says"),
        "How long after its lifetime an answer may still be sent when the pool is full (`stale_wait`) or fails. An answer that forbids \
         it (`must-revalidate`), or says `stale-if-error` itself, decides.").called(&["beresp_grace", "fastcgi_cache_use_stale", "keep"]),
    key(&[SiteCache], "stale_wait", Kind::Duration { zero: true }, Value("\"500ms\""),
        "If a request would wait this long for a worker, or there is no worker, an expired answer within its `grace` is sent at once, and one \
         request of low priority renews it. 0: whenever there is one."),
    key(&[SiteCache], "bypass_cookies", Kind::Names, Absent("as the preset says"),
        "Requests with such a cookie get no stored answer, and theirs is not stored: who is logged in, has a cart and so on. `*` stands for any \
         characters, `?` for one. `\"...\"` in this list and in the next ones stands for those of the preset (in a route without `preset`: of the site).")
        .called(&["fastcgi_cache_bypass", "no_cache_cookies"]),
    key(&[SiteCache], "bypass_paths", Kind::PathPatterns, Absent("as the preset says"),
        "The same for paths, which are written as `path` of a route.").called(&["CacheDisable", "no_cache_paths"]),
    key(&[SiteCache], "bypass_query", Kind::Names, Absent("as the preset says"),
        "The same for parameters of the query, whatever their value.").called(&["fastcgi_no_cache"]).like("[\"...\", \"member_*\"]"),
    key(&[SiteCache], "drop_query", Kind::Names, Absent("as the preset says"),
        "Parameters of the query that do not change the page, as those of advertising. Pages that differ only in them are one.")
        .called(&["CacheIgnoreQueryString", "CacheDropQS", "ignore_query"]).like("[\"...\", \"ref\"]"),
    key(&[SiteCache], "sort_query", Kind::Bool, Absent("as the preset says"),
        "Pages whose queries differ only in the order of parameters are one."),
    key(&[SiteCache], "vary_cookies", Kind::Names, Absent("none"),
        "Cookies whose values make other pages, for example the visitor's currency. Each value is stored apart.").like("[\"currency\"]"),
    key(&[SiteCache], "mobile", Kind::Bool, Value("false"),
        "Phones and tablets get pages of their own: clients that WordPress's `wp_is_mobile` finds."),
    key(&[SiteCache], "ignore_vary", Kind::HeaderNames, Absent("as the preset says"),
        "Headers that are ignored in `Vary`, because the other rules are enough.").like("[\"Cookie\"]"),
    key(&[SiteCache], "max_variants", Kind::Count { min: 1, max: 1000 }, Value("16"),
        "Maximum number of stored answers of one URL that differ because of `Vary`."),
    key(&[SiteCache], "public_if", Kind::FieldValues, Absent("as the preset says"),
        "Fields of an answer, with their whole value, by which the application says that the page is the same for everybody: such an answer is stored for `ttl` whatever its `Cache-Control` says. Never with `Set-Cookie`."),
    key(&[SiteCache], "client_directives", Kind::Bool, Value("false"),
        "Obey `Cache-Control` and `Pragma` of requests. With `true`, every visitor who reloads a page in the browser causes work for the pool."),
    key(&[SiteCache], "purge_on", Kind::PathPatterns, Absent("as the preset says"),
        "Paths at which users change pages. A request there purges the site if it has one of `bypass_cookies` or an `Authorization` header, its method \
         is not GET or HEAD (or it has a parameter of `bypass_query`), and its answer's status is below 400.").called(&["purge_paths"]),
    key(&[SiteCache], "purge_params", Kind::Assignments, Absent("as the preset says"),
        "The same for parameters of the query or of a form, at any path."),
    key(&[SiteCache], "login_paths", Kind::PathPatterns, Absent("as the preset says"),
        "Where the application sends those who are not logged in. An answer that redirects there purges nothing.").like("[\"/login\"]"),
    key(&[SiteCache], "cache_status", Kind::Bool, Value("true"),
        "Answers say in `Cache-Status` (RFC 9211) whether they come from the cache, and why not.").called(&["X-Cache", "CacheHeader", "CacheDetailHeader"]),
];
