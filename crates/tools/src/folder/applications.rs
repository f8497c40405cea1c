//! What weir knows of applications: how each is recognised, and what its operators configure.
//!
//! One row per application. `weir init`, `weir serve FOLDER` and the table in docs/init.md use these rows. Each row
//! follows what the application's own documentation says for nginx, or its own `.htaccess` ([`Application::source`]).
//! Paths are those of URLs, and begin at the application's folder.

/// An application.
#[derive(Debug)]
pub struct Application {
    /// Its name.
    pub name: &'static str,
    /// Where its document root may be, below its folder, and the files (from its folder) that prove it.
    pub places: &'static [(&'static str, &'static [&'static str])],
    /// The first index file, if it is not `index.php`.
    pub index: Option<&'static str>,
    /// `script`: the scripts that clients may run, if not all. It counts if the application is alone in its site.
    pub script: Option<&'static str>,
    /// The front controller.
    pub fallback: Option<&'static str>,
    /// The preset of `cache` for it.
    pub cache: Option<&'static str>,
    /// `max_body`, with PHP's limits for uploads.
    pub max_body: Option<&'static str>,
    /// Paths that nobody needs from outside, as in routes, and why.
    pub denied: &'static [(&'static str, &'static str)],
    /// Prefixes of folders that the application writes to: no script runs there.
    pub no_scripts: &'static [&'static str],
    /// Further routes.
    pub routes: &'static [Route],
    /// Further keys of the site: key, value, comment.
    pub site: &'static [Key],
    /// Further keys of the pool, in production.
    pub pool: &'static [Key],
    /// Where a package of Debian has a part of it: the document root, the path of the part, its folder.
    pub package: Option<(&'static str, &'static str, &'static str)>,
    /// Programs that run at times: name, command in the application's folder, schedule.
    pub programs: &'static [Program],
    /// Extensions of PHP that it needs, besides those that PHP always has.
    pub extensions: &'static [&'static str],
    /// What to do in the application.
    pub notes: &'static [&'static str],
    /// The page of the application that the row follows.
    pub source: &'static str,
}

/// A program that runs at times: its name, its command, its schedule.
pub type Program = (&'static str, &'static [&'static str], &'static str);

/// A key, its value in TOML, and a comment.
pub type Key = (&'static str, &'static str, &'static str);

/// A route.
#[derive(Debug)]
pub struct Route {
    /// Its path.
    pub path: &'static str,
    /// Its keys. Values of `fallback`, `redirect` and `rewrite` that are paths begin at the application's folder.
    pub keys: &'static [Key],
    /// Only if this file or folder is in the application's folder.
    pub only_with: Option<&'static str>,
}

/// All applications. If a folder has the files of several, the first one counts.
pub static APPLICATIONS: &[Application] = &[
    WORDPRESS,
    DRUPAL,
    JOOMLA,
    NEXTCLOUD,
    MEDIAWIKI,
    DOKUWIKI,
    MATOMO,
    KANBOARD,
    PHPMYADMIN,
    ROUNDCUBE,
    LARAVEL,
    SYMFONY,
    CAKEPHP,
    CODEIGNITER,
    YII,
];

/// A folder in which frameworks have their document root, if it is not a known application: it has an index.php, and
/// the folder itself has no index file.
pub const DOCUMENT_ROOTS: [&str; 6] = ["public", "web", "webroot", "pub", "htdocs", "public_html"];

/// What is denied in a folder with PHP that is no known application.
pub const DENIED_IN_PHP: &[(&str, &str)] = &[
    (
        r"~^/(.*/)?(composer\.(json|lock)|package(-lock)?\.json|yarn\.lock|phpunit\.xml)$",
        "which versions of which libraries there are",
    ),
    (r"~^/vendor/.*\.php", "libraries: only scripts use them"),
    (r"~^/.+\.(sql|sqlite3?|log)$", "dumps, databases and logs"),
];

/// Folders for uploads by their usual names, in a folder that is no known application.
pub const UPLOADS: [&str; 2] = ["uploads", "upload"];

const NONE: Application = Application {
    name: "",
    places: &[],
    index: None,
    script: None,
    fallback: None,
    cache: None,
    max_body: None,
    denied: &[],
    no_scripts: &[],
    routes: &[],
    site: &[],
    pool: &[],
    package: None,
    programs: &[],
    extensions: &[],
    notes: &[],
    source: "",
};

/// For frameworks with one script.
const FRONT: Application = Application {
    script: Some(ONLY_INDEX),
    fallback: Some("/index.php"),
    ..NONE
};

const ONLY_INDEX: &str = r"^(/index\.php)(/.*)?$";
const A_YEAR: &str = "\"public, max-age=31536000, immutable\"";

const WORDPRESS: Application = Application {
    name: "WordPress",
    places: &[("", &["wp-login.php", "wp-includes/version.php"])],
    cache: Some("wordpress"),
    fallback: Some("/index.php"),
    max_body: Some("64M"),
    denied: &[
        ("/wp-config.php", "the password of the database"),
        (
            r"~^/(wp-admin/includes/|wp-includes/([^/]+\.php|theme-compat/|js/tinymce/langs/.+\.php))",
            "parts of scripts",
        ),
        (
            r"~^/wp-content/(.+\.sql|debug\.log)$",
            "dumps and the log of errors",
        ),
    ],
    no_scripts: &["/wp-content/uploads/"],
    routes: &[Route {
        path: "/wp-includes/*",
        keys: &[(
            "cache_control",
            "\"public, max-age=86400\"",
            "URLs of these files have a version",
        )],
        only_with: None,
    }],
    package: Some((
        "/usr/share/wordpress",
        "/wp-content/*",
        "/var/lib/wordpress/wp-content",
    )),
    extensions: &["mysqli"],
    source: "https://developer.wordpress.org/advanced-administration/security/hardening/",
    ..NONE
};

const DRUPAL: Application = Application {
    name: "Drupal",
    places: &[
        ("", &["core/lib/Drupal.php"]),
        ("web", &["web/core/lib/Drupal.php"]),
        ("docroot", &["docroot/core/lib/Drupal.php"]),
        ("", &["includes/bootstrap.inc", "misc/drupal.js"]),
    ],
    cache: Some("drupal"),
    script: Some(
        r"^(/(?:index|update|cron|install|authorize|xmlrpc)\.php|/core/[^/]+\.php|/core/modules/statistics/statistics\.php)(/.*)?$",
    ),
    fallback: Some("/index.php"),
    max_body: Some("64M"),
    denied: &[
        (
            r"~^/(.*/)?[^/]*\.(engine|inc|install|make|module|profile|po|sh|sql|theme|twig|tpl(\.php)?|xtmpl|yml)$",
            "code and configuration of modules",
        ),
        (
            r"~^/(.*/)?(composer\.(json|lock)|package\.json|yarn\.lock|web\.config)$",
            "which versions of which libraries there are",
        ),
        (
            r"~^/sites/[^/]+/(private/|settings[^/]*\.php)",
            "private files, the password of the database",
        ),
        ("/vendor/*", "libraries: only scripts use them"),
    ],
    no_scripts: &["/sites/default/files/"],
    routes: &[Route {
        path: r"~^/sites/[^/]+/files/(css|js)/(css|js)_[0-9A-Za-z_-]+\.(css|js)$",
        keys: &[("cache_control", A_YEAR, "each version has another name")],
        only_with: None,
    }],
    extensions: &["dom", "gd", "mbstring", "pdo", "simplexml", "xml"],
    source: "https://www.drupal.org/docs/administering-a-drupal-site/security-in-drupal",
    ..NONE
};

const JOOMLA: Application = Application {
    name: "Joomla",
    places: &[("", &["administrator/index.php", "libraries/loader.php"])],
    fallback: Some("/index.php"),
    max_body: Some("64M"),
    denied: &[
        ("/configuration.php", "the password of the database"),
        (
            r"~^/(cli|logs|tmp|administrator/(cache|logs))(/|$)",
            "logs and temporary files",
        ),
        (r"~^/(htaccess\.txt|web\.config\.txt)$", "examples"),
    ],
    no_scripts: &["/images/", "/media/", "/cache/"],
    routes: &[Route {
        path: "/api/*",
        keys: &[(
            "fallback",
            "\"/api/index.php\"",
            "the web services of Joomla 4 and later",
        )],
        only_with: Some("api/index.php"),
    }],
    extensions: &["dom", "gd", "simplexml"],
    source: "https://docs.joomla.org/Nginx",
    ..NONE
};

const NEXTCLOUD: Application = Application {
    name: "Nextcloud",
    places: &[("", &["occ", "remote.php", "lib/versioncheck.php"])],
    script: Some(
        r"^(/(?:index|remote|public|cron|status|core/ajax/update|ocs/v[12]|ocs-provider/.+|updater/.+|.+/richdocumentscode(?:_arm64)?/proxy)\.php)(/.*)?$",
    ),
    fallback: Some("/index.php"),
    max_body: Some("512M"),
    denied: &[
        (
            r"~^/(build|tests|config|lib|3rdparty|templates|data)(/|$)",
            "users' files, passwords, libraries",
        ),
        (
            r"~^/(autotest|occ|issue|indie|db_|console)",
            "tools of the command line",
        ),
    ],
    routes: &[
        Route {
            path: r"~^/\.well-known/(carddav|caldav)$",
            keys: &[
                (
                    "redirect",
                    "\"/remote.php/dav/\"",
                    "where clients of calendars and contacts begin",
                ),
                ("status", "301", ""),
            ],
            only_with: None,
        },
        Route {
            path: r"~^/\.well-known/(webfinger|nodeinfo)",
            keys: &[
                (
                    "redirect",
                    "\"/index.php${uri}\"",
                    "Nextcloud answers these itself",
                ),
                ("status", "301", ""),
            ],
            only_with: None,
        },
        Route {
            path: r"~^/.+\.(css|js|mjs|svg|gif|ico|jpg|png|webp|wasm|tflite|map|ogg|flac)$",
            keys: &[(
                "cache_control",
                "\"public, max-age=15778463\"",
                "URLs of these files have a version",
            )],
            only_with: None,
        },
        Route {
            path: r"~^/.+\.(otf|woff2?)$",
            keys: &[("cache_control", "\"public, max-age=604800\"", "fonts")],
            only_with: None,
        },
    ],
    site: &[
        (
            "set_headers",
            "{ Referrer-Policy = \"no-referrer\", X-Content-Type-Options = \"nosniff\", X-Frame-Options = \"SAMEORIGIN\", X-Permitted-Cross-Domain-Policies = \"none\", X-Robots-Tag = \"noindex, nofollow\" }",
            "what its .htaccess sets",
        ),
        ("remove_headers", "[\"X-Powered-By\"]", ""),
        (
            "params",
            "{ front_controller_active = \"true\", modHeadersAvailable = \"true\" }",
            "URLs without index.php; the headers above are set",
        ),
    ],
    pool: &[(
        "php_value",
        "{ memory_limit = \"512M\", upload_max_filesize = \"512M\", post_max_size = \"512M\" }",
        "Nextcloud asks for this much memory",
    )],
    programs: &[("cron", &["php", "-f", "cron.php"], "*/5 * * * *")],
    extensions: &[
        "curl",
        "dom",
        "gd",
        "mbstring",
        "xmlreader",
        "xmlwriter",
        "zip",
    ],
    source: "https://docs.nextcloud.com/server/latest/admin_manual/installation/nginx.html",
    ..NONE
};

const MEDIAWIKI: Application = Application {
    name: "MediaWiki",
    places: &[("", &["load.php", "includes/WebStart.php"])],
    cache: Some("mediawiki"),
    denied: &[
        (
            r"~^/(cache|docs|includes|languages|maintenance|serialized|tests|vendor|images/(deleted|lockdir|temp))(/|$)",
            "libraries, and deleted files",
        ),
        (
            r"~^/(LocalSettings\.php|composer\.(json|lock))",
            "the password of the database",
        ),
    ],
    no_scripts: &["/images/"],
    routes: &[
        Route {
            path: "~^/wiki(/|$)",
            keys: &[("rewrite", "\"/index.php\"", "short URLs: /wiki/Main_Page")],
            only_with: None,
        },
        Route {
            path: "/images/*",
            keys: &[(
                "set_headers",
                "{ X-Content-Type-Options = \"nosniff\" }",
                "uploads are what their names say",
            )],
            only_with: None,
        },
    ],
    max_body: Some("100M"),
    notes: &[
        "short URLs need in LocalSettings.php: $wgArticlePath = \"/wiki/$1\"; $wgUsePathInfo = true;",
    ],
    extensions: &["intl", "mbstring", "xml"],
    source: "https://www.mediawiki.org/wiki/Manual:Security",
    ..NONE
};

const DOKUWIKI: Application = Application {
    name: "DokuWiki",
    places: &[("", &["doku.php", "inc/init.php"])],
    index: Some("doku.php"),
    denied: &[(
        r"~^/(data|conf|bin|inc|vendor)(/|$)",
        "pages and passwords: only scripts read them",
    )],
    routes: &[
        Route {
            path: "~^/_media/(.*)$",
            keys: &[("rewrite", "\"/lib/exe/fetch.php?media=$1\"", "uploads")],
            only_with: None,
        },
        Route {
            path: "~^/_detail/(.*)$",
            keys: &[("rewrite", "\"/lib/exe/detail.php?media=$1\"", "")],
            only_with: None,
        },
        Route {
            path: "~^/_export/([^/]+)/(.*)$",
            keys: &[("rewrite", "\"/doku.php?do=export_$1&id=$2\"", "")],
            only_with: None,
        },
        Route {
            path: "~^/(.+)$",
            keys: &[(
                "fallback",
                "\"/doku.php?id=$1\"",
                "what is no file is a page",
            )],
            only_with: None,
        },
    ],
    max_body: Some("64M"),
    notes: &["readable URLs need in its conf/local.php: $conf['userewrite'] = 1;"],
    extensions: &["xml"],
    source: "https://www.dokuwiki.org/install:nginx",
    ..NONE
};

const MATOMO: Application = Application {
    name: "Matomo",
    places: &[("", &["matomo.php", "core/Version.php"])],
    script: Some(
        r"^(/(?:index|matomo|piwik|js/index|plugins/HeatmapSessionRecording/configs)\.php)(/.*)?$",
    ),
    denied: &[
        (
            r"~^/(config|core|lang|tmp)(/|$)",
            "the password of the database, temporary files",
        ),
        (
            r"~^/(libs|misc/user|node_modules|plugins|vendor)/.*\.(dist|inc|less|lock|md|sh|sql|twig|txt|xml|yml)$",
            "parts of scripts",
        ),
    ],
    routes: &[
        Route {
            path: r"~^/js/container_.*_preview\.js$",
            keys: &[(
                "cache_control",
                "\"private, no-cache, no-store\"",
                "previews of the tag manager",
            )],
            only_with: None,
        },
        Route {
            path: r"~^/.+\.(gif|ico|jpg|png|svg|js|css|woff2?|ttf)$",
            keys: &[(
                "cache_control",
                "\"public, max-age=3600\"",
                "an update is seen after an hour",
            )],
            only_with: None,
        },
    ],
    extensions: &["dom", "mbstring", "mysqli"],
    source: "https://github.com/matomo-org/matomo-nginx",
    ..NONE
};

const KANBOARD: Application = Application {
    name: "Kanboard",
    places: &[("", &["jsonrpc.php", "app/common.php"])],
    script: Some(r"^(/(?:index|jsonrpc|healthcheck)\.php)(/.*)?$"),
    fallback: Some("/index.php"),
    max_body: Some("32M"),
    denied: &[
        (
            r"~^/(app|cli|data|libs|vendor)(/|$)",
            "code, the database and uploads: only scripts read them",
        ),
        (r"~^/.+\.(log|sqlite)$", "databases and logs"),
    ],
    extensions: &["dom", "gd", "mbstring", "pdo", "simplexml"],
    source: "https://github.com/kanboard/kanboard/blob/main/docker/etc/nginx/nginx.conf",
    ..NONE
};

const PHPMYADMIN: Application = Application {
    name: "phpMyAdmin",
    places: &[("", &["show_config_errors.php", "libraries"])],
    max_body: Some("64M"),
    denied: &[
        (
            r"~^/(libraries|save|setup|sql|templates|tmp|upload|vendor)(/|$)",
            "code, and the set-up with its passwords",
        ),
        ("/config.inc.php", "passwords"),
    ],
    extensions: &["mysqli", "xml"],
    source: "https://docs.phpmyadmin.net/en/latest/setup.html",
    ..NONE
};

const ROUNDCUBE: Application = Application {
    name: "Roundcube",
    places: &[
        (
            "public_html",
            &["public_html/index.php", "program/include/iniset.php"],
        ),
        ("", &["index.php", "program/include/iniset.php"]),
    ],
    max_body: Some("30M"),
    denied: &[
        (
            r"~^/(SQL|bin|config|installer|logs|temp|tests|vendor|program/(actions|include|lib|localization|steps))(/|$)",
            "passwords, mails that are written, code",
        ),
        (
            r"~^/(CHANGELOG|INSTALL|README|SECURITY|UPGRADING|composer\.|jsdeps\.json|meta\.json)",
            "which versions there are",
        ),
    ],
    extensions: &["dom", "mbstring", "pdo"],
    source: "https://github.com/roundcube/roundcubemail/wiki/Installation",
    ..NONE
};

const LARAVEL: Application = Application {
    name: "Laravel",
    places: &[("public", &["artisan", "public/index.php"])],
    cache: Some("laravel"),
    routes: &[
        Route {
            path: "/storage/*",
            keys: &[
                (
                    "follow_symlinks",
                    "true",
                    "public/storage is a link to storage/app/public",
                ),
                ("fallback", "\"\"", ""),
            ],
            only_with: None,
        },
        Route {
            path: "/build/assets/*",
            keys: &[("cache_control", A_YEAR, "Vite names each version otherwise")],
            only_with: None,
        },
    ],
    programs: &[(
        "scheduler",
        &["php", "artisan", "schedule:run"],
        "* * * * *",
    )],
    extensions: &["curl", "dom", "mbstring", "pdo", "xml"],
    source: "https://laravel.com/docs/deployment#nginx",
    ..FRONT
};

const SYMFONY: Application = Application {
    name: "Symfony",
    places: &[
        (
            "public",
            &["bin/console", "public/index.php", "config/bundles.php"],
        ),
        (
            "public",
            &["bin/console", "public/index.php", "symfony.lock"],
        ),
    ],
    routes: &[
        Route {
            path: r"~^/build/.+\.[0-9a-f]{8,}\.[a-z0-9]+$",
            keys: &[(
                "cache_control",
                A_YEAR,
                "Encore names each version otherwise",
            )],
            only_with: None,
        },
        Route {
            path: r"~^/assets/.+\.(avif|css|gif|ico|jpe?g|js|png|svg|webp|woff2?)$",
            keys: &[(
                "cache_control",
                A_YEAR,
                "AssetMapper names each version otherwise",
            )],
            only_with: Some("importmap.php"),
        },
    ],
    pool: &[("env", "{ APP_ENV = \"prod\" }", "")],
    extensions: &["simplexml"],
    source: "https://symfony.com/doc/current/setup/web_server_configuration.html",
    ..FRONT
};

const CAKEPHP: Application = Application {
    name: "CakePHP",
    places: &[("webroot", &["bin/cake", "webroot/index.php"])],
    extensions: &["intl", "mbstring", "simplexml"],
    source: "https://book.cakephp.org/5/en/installation.html",
    ..FRONT
};

const CODEIGNITER: Application = Application {
    name: "CodeIgniter",
    places: &[("public", &["spark", "public/index.php"])],
    extensions: &["intl", "mbstring"],
    source: "https://codeigniter.com/user_guide/installation/running.html",
    ..FRONT
};

const YII: Application = Application {
    name: "Yii",
    places: &[("web", &["yii", "web/index.php"])],
    extensions: &["mbstring"],
    source: "https://www.yiiframework.com/doc/guide/2.0/en/start-installation",
    ..FRONT
};
