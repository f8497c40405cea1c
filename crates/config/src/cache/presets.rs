//! The rules for each application, one table each. docs/caching.md shows them: [`tables`].
//!
//! A preset works on an installation that knows nothing of weir. What a request has that makes its page personal is
//! in the bypass lists; each group says why it is there. If in doubt, a page is not stored.

use core::time::Duration;
use std::sync::{Arc, LazyLock};

use crate::{
    entries::Entries,
    model::{CachePreset, CacheRules, PathPattern},
    rows::Section,
    texts,
};

/// The words of `preset`.
pub(crate) const WORDS: &[&str] = &[
    "headers",
    "wordpress",
    "drupal",
    "mediawiki",
    "laravel",
    "off",
];

/// Patterns, and why they are in a list.
type Group = (&'static str, &'static [&'static str]);

struct Preset {
    preset: CachePreset,
    word: &'static str,
    title: &'static str,
    /// What an administrator has to know. Markdown.
    about: &'static str,
    ttl: Duration,
    grace: Duration,
    bypass_cookies: &'static [Group],
    bypass_paths: &'static [Group],
    bypass_query: &'static [Group],
    drop_query: &'static [Group],
    sort_query: bool,
    ignore_vary: &'static [&'static str],
    public_if: &'static [(&'static str, &'static str)],
    purge_on: &'static [Group],
    purge_params: &'static [Group],
    login_paths: &'static [&'static str],
}

/// The rules of a preset. Sites that write nothing else share them.
pub(super) fn rules(preset: CachePreset) -> Arc<CacheRules> {
    static MADE: LazyLock<Vec<Arc<CacheRules>>> =
        LazyLock::new(|| ALL.iter().map(|preset| Arc::new(preset.rules())).collect());
    let found = MADE.iter().find(|rules| rules.preset == preset);
    found.unwrap_or(&MADE[0]).clone()
}

/// The presets as Markdown: a heading, a sentence and a table for each, and the parameters of advertising.
pub fn tables() -> String {
    let mut page = String::new();
    for preset in ALL {
        preset.describe(&mut page);
    }
    page.push_str("### Parameters of advertising\n\n");
    page.push_str(
        "Mails and advertisements add them to links; scripts in the browser read them.\n\n",
    );
    page.push_str("| whose | parameters |\n|---|---|\n");
    for (whose, names) in ADVERTISING {
        page.push_str(&format!("| {whose} | {} |\n", code(names)));
    }
    page
}

impl Preset {
    fn rules(&self) -> CacheRules {
        let flat = |groups: &[Group]| {
            let patterns = groups.iter().flat_map(|(_, patterns)| patterns.iter());
            patterns
                .map(|pattern| (*pattern).to_owned())
                .collect::<Vec<String>>()
        };
        let paths = |patterns: Vec<String>| {
            let read = patterns
                .iter()
                .filter_map(|text| texts::path_pattern(text).ok());
            read.collect::<Vec<PathPattern>>()
        };
        let owned = |list: &[&str]| {
            list.iter()
                .map(|text| (*text).to_owned())
                .collect::<Vec<_>>()
        };
        let pairs = self.public_if.iter();
        CacheRules {
            preset: self.preset,
            ttl: self.ttl,
            grace: self.grace,
            bypass_cookies: flat(self.bypass_cookies),
            bypass_paths: paths(flat(self.bypass_paths)),
            bypass_query: flat(self.bypass_query),
            drop_query: flat(self.drop_query),
            sort_query: self.sort_query,
            ignore_vary: owned(self.ignore_vary),
            public_if: pairs
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
            purge_on: paths(flat(self.purge_on)),
            purge_params: flat(self.purge_params),
            login_paths: paths(owned(self.login_paths)),
            ..Entries::none(Section::SiteCache, "cache", 0..0).fields(None)
        }
    }

    fn describe(&self, page: &mut String) {
        let (title, word, about) = (self.title, self.word, self.about);
        page.push_str(&format!("### {title}: `cache = \"{word}\"`\n\n{about}\n\n"));
        let rows = self.rows();
        if !rows.is_empty() {
            page.push_str("| key | value | because |\n|---|---|---|\n");
        }
        for (key, value, why) in rows.iter() {
            page.push_str(&format!("| `{key}` | {value} | {why} |\n"));
        }
        if !rows.is_empty() {
            page.push('\n');
        }
    }

    /// Key, value and reason of everything that the preset says.
    fn rows(&self) -> Vec<(&'static str, String, &'static str)> {
        let mut rows = Vec::new();
        let times = [
            ("ttl", self.ttl, "lifetime of a page that says none"),
            (
                "grace",
                self.grace,
                "expired pages help when the pool is full or fails",
            ),
        ];
        for (key, time, why) in times.into_iter().filter(|(_, time, _)| !time.is_zero()) {
            rows.push((key, format!("`\"{}\"`", shown(time)), why));
        }
        for (key, groups) in [
            ("bypass_cookies", self.bypass_cookies),
            ("bypass_paths", self.bypass_paths),
            ("bypass_query", self.bypass_query),
            ("purge_on", self.purge_on),
            ("purge_params", self.purge_params),
        ] {
            rows.extend(
                groups
                    .iter()
                    .map(|(why, patterns)| (key, code(patterns), *why)),
            );
        }
        if !self.login_paths.is_empty() {
            let why = "who may not edit is sent there, and purges nothing";
            rows.push(("login_paths", code(self.login_paths), why));
        }
        for (name, value) in self.public_if {
            let why = "the page is the same for everybody without a session";
            rows.push(("public_if", format!("`{name}: {value}`"), why));
        }
        if !self.ignore_vary.is_empty() {
            let why = "`bypass_cookies` has the cookies that matter";
            rows.push(("ignore_vary", code(self.ignore_vary), why));
        }
        if !self.drop_query.is_empty() {
            let link = "[those of advertising](#parameters-of-advertising)".to_owned();
            rows.push(("drop_query", link, "they do not change the page"));
        }
        if self.sort_query {
            rows.push((
                "sort_query",
                "`true`".to_owned(),
                "PHP reads parameters by name",
            ));
        }
        rows
    }
}

fn code(patterns: &[&str]) -> String {
    let quoted: Vec<String> = patterns
        .iter()
        .map(|pattern| format!("`{}`", pattern.replace('|', "\\|")))
        .collect();
    quoted.join(", ")
}

fn shown(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds.is_multiple_of(DAY) => format!("{}d", seconds / DAY),
        seconds => format!("{}m", seconds / MINUTE),
    }
}

const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60 * MINUTE;

const ALL: &[Preset] = &[HEADERS, WORDPRESS, DRUPAL, MEDIAWIKI, LARAVEL];

#[rustfmt::skip]
const HEADERS: Preset = Preset {
    preset: CachePreset::Headers,
    word: "headers",
    title: "Any application",
    about: "Only what the application allows in its headers: `Cache-Control`, `Expires`, `CDN-Cache-Control`, `Weir-Cache-Control`, `Vary`. Nothing is added to it.",
    ttl: Duration::ZERO,
    grace: Duration::ZERO,
    bypass_cookies: &[],
    bypass_paths: &[],
    bypass_query: &[],
    drop_query: &[],
    sort_query: false,
    ignore_vary: &[],
    public_if: &[],
    purge_on: &[],
    purge_params: &[],
    login_paths: &[],
};

/// WordPress sends `no-cache` to users who are logged in and with pages that are not there, and nothing otherwise.
#[rustfmt::skip]
const WORDPRESS: Preset = Preset {
    preset: CachePreset::WordPress,
    word: "wordpress",
    title: "WordPress and WooCommerce",
    about: "Pages of visitors who are not logged in, have no cart and have written no comment. An edit in the administration is seen \
            at once on all pages, a new comment on its own page.",
    ttl: Duration::from_secs(10 * MINUTE),
    grace: Duration::from_secs(DAY),
    bypass_cookies: &[
        ("logged in", &["wordpress_logged_in_*", "wordpress_sec_*"]),
        ("has entered the password of a post", &["wp-postpass_*"]),
        ("has commented: the form is filled in, and the comment may wait for approval", &["comment_author_*"]),
        ("recovery mode of an administrator", &["wordpress_rec_*"]),
        ("cart and session of WooCommerce", &["woocommerce_items_in_cart", "woocommerce_cart_hash", "wp_woocommerce_session_*"]),
        ("WooCommerce's widget shows the products that the visitor has seen", &["woocommerce_recently_viewed"]),
        ("cart of Easy Digital Downloads", &["edd_items_in_cart"]),
        ("a plugin with a session of PHP", &["PHPSESSID"]),
    ],
    bypass_paths: &[
        ("administration, login, registration", &["*/wp-admin/*", "*/wp-login.php", "*/wp-signup.php", "*/wp-activate.php"]),
        ("work of the server", &["*/wp-cron.php", "*/xmlrpc.php", "*/wp-trackback.php", "*/wp-comments-post.php"]),
        ("interfaces for programs", &["*/wp-json/*", "*/wc-api/*"]),
        ("WooCommerce; under other names it says `no-cache` itself", &["*/cart/*", "*/cart", "*/checkout/*", "*/checkout", "*/my-account/*", "*/my-account"]),
    ],
    bypass_query: &[
        ("drafts and the customizer", &["preview", "preview_id", "preview_nonce", "customize_*", "wp_customize"]),
        ("a link that does something", &["_wpnonce", "doing_wp_cron"]),
        ("the REST interface without pretty links", &["rest_route"]),
        ("a comment that waits for approval", &["unapproved", "moderation-hash"]),
        ("WooCommerce", &["add-to-cart", "remove_item", "undo_item", "removed_item", "wc-ajax", "wc-api", "download_file", "order", "key"]),
        ("Easy Digital Downloads", &["edd_action"]),
    ],
    drop_query: ADVERTISING,
    sort_query: true,
    ignore_vary: &[],
    public_if: &[],
    purge_on: &[
        (
            "pages, comments, menus, themes, settings",
            &[r"~/wp-admin/(?:network/)?(?:admin|admin-post|comment|customize|edit|edit-comments|edit-tags|link|media|nav-menus|options(?:-[a-z]+)?|plugins|post|profile|site-editor|term|themes|tools|update|update-core|upload|user-edit|users|widgets)\.php$"],
        ),
        (
            "the block editor, without what it saves by itself while somebody writes",
            &[r"~/wp-json/wp/v2/(?:[a-z_-]+(?:/[0-9]+)?|(?:templates|template-parts|sidebars|widgets|navigation|global-styles)/[^/]+(?://?[^/]+)?)$"],
        ),
        ("the interface of WooCommerce for programs", &["*/wp-json/wc/v*", "*/wp-json/wc-analytics/*"]),
    ],
    purge_params: &[
        ("quick edit, categories, tags", &["action=inline-save*", "action=add-tag", "action=delete-tag"]),
        ("lists of the administration", &["action=delete-post", "action=trash-post", "action=untrash-post", "action=delete-page"]),
        ("comments", &["action=edit-comment", "action=delete-comment", "action=dim-comment", "action=replyto-comment"]),
        ("the customizer, menus, widgets", &["action=customize_save", "action=add-menu-item", "action=save-widget", "action=widgets-order"]),
        ("plugins, themes", &["action=update-plugin", "action=delete-plugin", "action=update-theme", "action=delete-theme"]),
        ("WooCommerce", &["action=woocommerce_save_variations", "action=woocommerce_feature_product"]),
    ],
    login_paths: &["*/wp-login.php"],
};

/// Drupal's own cache of pages decides by the same rules as weir: `X-Drupal-Cache` says what it decided.
#[rustfmt::skip]
const DRUPAL: Preset = Preset {
    preset: CachePreset::Drupal,
    word: "drupal",
    title: "Drupal",
    about: "Pages that Drupal's own page cache takes, too: without session, and without anything that Drupal calls personal. Drupal's setting \
            “browser and proxy cache maximum age” need not be set; if it is, it is the lifetime.",
    ttl: Duration::from_secs(5 * MINUTE),
    grace: Duration::from_secs(DAY),
    bypass_cookies: &[
        ("has a session", &["SESS*", "SSESS*"]),
        ("modules that keep a visitor out of caches", &["NO_CACHE", "PERSISTENT_LOGIN_*"]),
    ],
    bypass_paths: &[
        (
            "administration, users, carts, also behind a language",
            &[r"~^/(?:[a-z]{2,3}(?:-[A-Za-z]{2,8})?/)?(?:admin|user|cart|checkout|batch|flag)(?:/|$)"],
        ),
        ("work of the server", &["/cron/*", "/update.php", "/core/*.php", "/install.php"]),
        ("private files and tokens", &["/system/files/*", "/session/*"]),
    ],
    bypass_query: &[
        ("forms and parts of pages", &["ajax_form", "_wrapper_format", "form_build_id"]),
        ("a link that does something", &["token"]),
    ],
    drop_query: ADVERTISING,
    sort_query: true,
    ignore_vary: &["cookie"],
    public_if: &[("x-drupal-cache", "HIT"), ("x-drupal-cache", "MISS")],
    purge_on: &[(
        "content, blocks, menus, settings, also behind a language",
        &[r"~^/(?:[a-z]{2,3}(?:-[A-Za-z]{2,8})?/)?(?:node|admin|comment|taxonomy|media|block|jsonapi|layout_builder|quickedit|views)(?:/|$)"],
    )],
    purge_params: &[],
    login_paths: &[r"~^/(?:[a-z]{2,3}(?:-[A-Za-z]{2,8})?/)?user/login$"],
};

/// MediaWiki says `s-maxage` only with `$wgUseCdn`. Without it, each page that a browser may keep says `private`; special
/// pages and forms say `no-store`.
#[rustfmt::skip]
const MEDIAWIKI: Preset = Preset {
    preset: CachePreset::MediaWiki,
    word: "mediawiki",
    title: "MediaWiki",
    about: "Pages of readers who are not logged in. With `$wgUseCdn = true;` in LocalSettings.php, MediaWiki says a lifetime, which then counts. \
            Changes that come through `api.php`, such as those of the visual editor, are seen after `ttl`.",
    ttl: Duration::from_secs(5 * MINUTE),
    grace: Duration::from_secs(DAY),
    bypass_cookies: &[
        ("has a session, or stays logged in", &["*_session", "*Token", "*UserID"]),
        ("has just logged out: the browser's own pages must go", &["*LoggedOut"]),
        ("is blocked, or must use https", &["*BlockID", "forceHTTPS"]),
    ],
    bypass_paths: &[
        ("interfaces for programs", &["*/api.php", "*/rest.php", "*/rest.php/*"]),
        ("files that need rights", &["*/img_auth.php", "*/img_auth.php/*"]),
    ],
    bypass_query: &[
        ("everything but reading", &["action", "veaction", "preload", "wpPreload", "undo", "token"]),
        ("login", &["returnto", "returntoquery", "fromhttp"]),
        ("searching for faults", &["debug", "safemode"]),
    ],
    drop_query: ADVERTISING,
    sort_query: true,
    ignore_vary: &["cookie"],
    public_if: &[("cache-control", "private, must-revalidate, max-age=0")],
    purge_on: &[("edits, moves, deletions", &["*/index.php", "*/index.php/*", "/wiki/*"])],
    purge_params: &[],
    login_paths: &["*/Special:UserLogin"],
};

/// Routes of the group `web` always send cookies of a session, so their answers are never stored.
#[rustfmt::skip]
const LARAVEL: Preset = Preset {
    preset: CachePreset::Laravel,
    word: "laravel",
    title: "Laravel",
    about: "Routes that allow it, by the middleware `cache.headers:public;max_age=600` or a header. Such a route must not be in the group `web`, whose session \
            adds a cookie to each answer: an answer with `Set-Cookie` is never stored.",
    ttl: Duration::ZERO,
    grace: Duration::from_secs(DAY),
    bypass_cookies: &[("stays logged in", &["remember_*"])],
    bypass_paths: &[
        ("login", &["/login", "/logout", "/register", "/password/*", "/forgot-password", "/reset-password/*", "/email/verify*", "/two-factor-*", "/sanctum/*", "/oauth/*"]),
        ("tools", &["/livewire/*", "/broadcasting/*", "/telescope*", "/horizon*", "/pulse*", "/nova*", "/_debugbar/*", "/_ignition/*", "/up"]),
    ],
    bypass_query: &[("signed links", &["signature", "token"])],
    drop_query: ADVERTISING,
    sort_query: true,
    ignore_vary: &[],
    public_if: &[],
    purge_on: &[],
    purge_params: &[],
    login_paths: &[],
};

#[rustfmt::skip]
const ADVERTISING: &[Group] = &[
    ("Google Analytics and whoever has taken its names", &["utm_*", "_ga", "_gl"]),
    ("Google Ads, Merchant Center", &["gclid", "gclsrc", "gbraid", "wbraid", "dclid", "gad_source", "gad_campaignid", "srsltid"]),
    ("Meta", &["fbclid", "fb_action_ids", "fb_action_types", "fb_source", "igshid", "igsh"]),
    ("Microsoft Advertising", &["msclkid"]),
    ("TikTok, X, LinkedIn, Pinterest, Reddit, Snapchat", &["ttclid", "twclid", "li_fat_id", "epik", "rdt_cid", "ScCid"]),
    ("Yandex", &["yclid", "ysclid", "_openstat"]),
    ("Mailchimp, Marketo, HubSpot, Klaviyo, Vero, Omeda, Dotdigital", &["mc_cid", "mc_eid", "mkt_tok", "_hsenc", "_hsmi", "hsCtaTracking", "_kx", "_ke", "vero_id", "vero_conv", "oly_enc_id", "oly_anon_id", "dm_i"]),
    ("Matomo, Piwik", &["mtm_*", "matomo_*", "pk_*", "piwik_*"]),
    ("Adobe, Branch, CJ, Impact, Wicked Reports", &["s_kwcid", "ef_id", "_branch_match_id", "cjevent", "irclickid", "wickedid"]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar;

    fn matches(patterns: &[PathPattern], path: &str) -> bool {
        patterns.iter().any(|pattern| match pattern {
            PathPattern::Regex(regex) => scalar::regex(regex).unwrap().is_match(path),
            PathPattern::Glob(glob) => is_like(glob, path),
        })
    }

    /// A glob as the gateway has it.
    fn is_like(glob: &str, text: &str) -> bool {
        let escaped: Vec<String> = glob.split('*').map(escaped).collect();
        let regex = format!("^{}$", escaped.join(".*"));
        scalar::regex(&regex).unwrap().is_match(text)
    }

    fn escaped(text: &str) -> String {
        let mut out = String::new();
        for character in text.chars() {
            match character {
                '?' => out.push('.'),
                c if c.is_alphanumeric() || "/_-:=".contains(c) => out.push(c),
                c => out.extend(['\\', c]),
            }
        }
        out
    }

    fn has(names: &[String], name: &str) -> bool {
        names.iter().any(|glob| is_like(glob, name))
    }

    #[test]
    fn each_word_is_a_preset_whose_patterns_are_right() {
        let words: Vec<&str> = ALL.iter().map(|preset| preset.word).collect();
        assert_eq!(words, WORDS[..ALL.len()]);
        for preset in ALL {
            let rules = preset.rules();
            let count = |groups: &[Group]| groups.iter().map(|(_, all)| all.len()).sum::<usize>();
            assert_eq!(
                rules.bypass_paths.len(),
                count(preset.bypass_paths),
                "{}",
                preset.word
            );
            assert_eq!(
                rules.purge_on.len(),
                count(preset.purge_on),
                "{}",
                preset.word
            );
            assert_eq!(
                rules.login_paths.len(),
                preset.login_paths.len(),
                "{}",
                preset.word
            );
            for names in [
                &rules.bypass_cookies,
                &rules.bypass_query,
                &rules.drop_query,
            ] {
                for name in names {
                    assert!(crate::cache::name(name).is_ok(), "{name}");
                }
            }
            for pair in &rules.purge_params {
                assert!(crate::cache::assignment(pair).is_ok(), "{pair}");
            }
        }
        assert_eq!(
            rules(CachePreset::Headers).stale_wait,
            Duration::from_millis(500)
        );
    }

    #[test]
    fn wordpress_knows_who_is_personal() {
        let rules = rules(CachePreset::WordPress);
        for cookie in [
            "wordpress_logged_in_0a1b2c",
            "wordpress_sec_0a1b2c",
            "wp-postpass_0a1b2c",
            "comment_author_0a1b2c",
            "comment_author_email_0a1b2c",
            "woocommerce_items_in_cart",
            "wp_woocommerce_session_0a1b2c",
        ] {
            assert!(has(&rules.bypass_cookies, cookie), "{cookie}");
        }
        // Everybody who has seen the login page, a cookie banner or an advertisement has these.
        for cookie in [
            "wordpress_test_cookie",
            "wp-settings-time-1",
            "_ga",
            "cookieyes-consent",
            "sbjs_current",
        ] {
            assert!(!has(&rules.bypass_cookies, cookie), "{cookie}");
        }
        for path in [
            "/wp-admin/",
            "/wp-admin/index.php",
            "/blog/wp-admin/post.php",
            "/wp-login.php",
            "/wp-json/wp/v2/posts",
            "/cart/",
            "/checkout/order-received/7/",
        ] {
            assert!(matches(&rules.bypass_paths, path), "{path}");
        }
        for path in [
            "/",
            "/2026/11/hello/",
            "/feed/",
            "/product/cart-cover/",
            "/sitemap.xml",
            "/shop/",
        ] {
            assert!(!matches(&rules.bypass_paths, path), "{path}");
        }
        assert!(has(&rules.drop_query, "utm_source") && has(&rules.drop_query, "fbclid"));
        assert!(!has(&rules.drop_query, "s") && !has(&rules.drop_query, "paged"));
    }

    #[test]
    fn wordpress_knows_what_changes_pages() {
        let rules = rules(CachePreset::WordPress);
        for path in [
            "/wp-admin/post.php",
            "/blog/wp-admin/network/themes.php",
            "/wp-admin/options-permalink.php",
            "/wp-json/wp/v2/posts/12",
            "/wp-json/wp/v2/posts",
            "/wp-json/wp/v2/templates/twentytwentyfive//home",
            "/wp-json/wp/v2/settings",
            "/wp-json/wc/v3/products/12",
        ] {
            assert!(matches(&rules.purge_on, path), "{path}");
        }
        for path in [
            "/wp-admin/admin-ajax.php",
            "/wp-admin/async-upload.php",
            "/wp-json/wp/v2/posts/12/autosaves",
            "/wp-json/wc/store/v1/cart",
            "/wp-cron.php",
            "/hello/",
        ] {
            assert!(!matches(&rules.purge_on, path), "{path}");
        }
        assert!(has(&rules.purge_params, "action=inline-save"));
        assert!(!has(&rules.purge_params, "action=heartbeat"));
    }

    #[test]
    fn drupal_and_mediawiki_know_their_sessions() {
        let drupal = rules(CachePreset::Drupal);
        assert!(has(&drupal.bypass_cookies, "SSESSb6d5"));
        assert!(!has(&drupal.bypass_cookies, "Drupal.visitor.name"));
        for path in ["/user/login", "/de/admin/content", "/pt-br/user", "/admin"] {
            assert!(matches(&drupal.bypass_paths, path), "{path}");
        }
        for path in ["/node/1", "/users-guide", "/docs/user/first-steps"] {
            assert!(!matches(&drupal.bypass_paths, path), "{path}");
        }
        assert!(matches(&drupal.purge_on, "/en/node/12/edit"));
        let wiki = rules(CachePreset::MediaWiki);
        for cookie in ["wikidb_session", "my_wikiToken", "wikidb_mw_LoggedOut"] {
            assert!(has(&wiki.bypass_cookies, cookie), "{cookie}");
        }
        assert!(matches(&wiki.bypass_paths, "/w/api.php"));
        assert!(!matches(&wiki.bypass_paths, "/wiki/Main_Page"));
        assert!(matches(&wiki.purge_on, "/w/index.php"));
    }

    #[test]
    fn the_page_has_each_pattern() {
        let page = tables();
        for name in [
            "wordpress_logged_in_*",
            "utm_*",
            "SSESS*",
            "private, must-revalidate",
        ] {
            assert!(page.contains(name), "{name}");
        }
    }
}
