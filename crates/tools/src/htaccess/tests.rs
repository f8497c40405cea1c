//! What applications write into their `.htaccess`, and how weir reads it compared with Apache.

use std::fs;

use proptest::prelude::*;

use super::*;

fn read(text: &str, folder: &str) -> Htaccess {
    let (effects, left) = parse(text, folder);
    Htaccess {
        path: format!("/srv{folder}.htaccess").into(),
        folder: folder.into(),
        effects,
        left,
    }
}

fn said(text: &str) -> String {
    read(text, "/data/").denies().unwrap_or_default()
}

#[test]
fn a_folder_that_is_denied_to_all_is_known_in_every_spelling() {
    for text in [
        "Require all denied",
        "require  ALL   denied\n",
        "Deny from all",
        "order deny,allow\ndeny from all",
        "Order Allow,Deny",
        "Order allow,deny\nDeny from all",
        "<IfModule mod_authz_core.c>\n  Require all denied\n</IfModule>\n\
         <IfModule !mod_authz_core.c>\n  Order allow,deny\n  Deny from all\n</IfModule>",
        "<IfModule authz_core_module>\nRequire all denied\n</IfModule>",
        "<IfVersion >= 2.4>\nRequire all denied\n</IfVersion>\n<IfVersion < 2.4>\nAllow from all\n</IfVersion>",
        "<Limit GET POST PUT>\ndeny from all\n</Limit>",
        "Require \\\n all denied",
        "# all\n<RequireAll>\nRequire all denied\n</RequireAll>",
        "Require all denied\n</Files>\n<broken",
    ] {
        assert_eq!(said(text), "denies /data/ to all", "{text}");
    }
}

#[test]
fn what_lets_somebody_in_is_no_denial() {
    for (text, expected) in [
        ("", ""),
        ("Require all granted", ""),
        ("Order deny,allow\nAllow from all", ""),
        ("Order allow,deny\nAllow from all", ""),
        ("# Require all denied", ""),
        (
            "<IfModule !mod_authz_core.c>\nDeny from all\n</IfModule>",
            "",
        ),
        ("Options -Indexes\nErrorDocument 404 /x", ""),
        ("Require ip 10.0.0.0/8", "limits /data/ by address"),
        (
            "Order deny,allow\nDeny from all\nAllow from 10.",
            "limits /data/ by address",
        ),
        (
            "AuthType Basic\nRequire valid-user",
            "limits /data/ by password",
        ),
        (
            "<RequireAll>\nRequire all granted\nRequire not ip 1.2.3.4\n</RequireAll>",
            "limits /data/ by a condition",
        ),
        (
            "<LimitExcept GET POST>\nRequire all denied\n</LimitExcept>",
            "limits /data/ by methods but GET POST",
        ),
        (
            "<If \"%{QUERY_STRING} =~ /x/\">\nRequire all denied\n</If>",
            "limits /data/ by a condition",
        ),
        ("php_flag engine off", "runs no scripts in /data/"),
        ("RemoveHandler .php .phtml", "runs no scripts in /data/"),
        (
            "RewriteEngine On\nRewriteRule ^(.*)$ index.php?q=$1 [L,QSA]",
            "",
        ),
        (
            "RewriteEngine on\nRewriteRule ^(conf|bin)/ - [F,L]",
            "denies URLs like ^(conf|bin)/ in /data/ to all",
        ),
        (
            "RewriteEngine on\nRewriteCond %{REMOTE_ADDR} !^10\nRewriteRule .* - [F]",
            "limits /data/ by a condition for URLs like .*",
        ),
        (
            "<FilesMatch \"^(?!index)\">\nRequire all denied\n</FilesMatch>",
            "denies files like ^(?!index) in /data/ to all",
        ),
    ] {
        assert_eq!(said(text), expected, "{text}");
    }
}

/// Whether the routes from a tree of such files deny a path.
fn denied(files: &[(&str, &str)], path: &str) -> bool {
    let files: Vec<Htaccess> = (files.iter())
        .map(|(folder, text)| read(text, folder))
        .collect();
    let refusals = refusals_of(&files);
    let matches = |pattern: &str| match pattern.strip_prefix('~') {
        Some(regex) => regex::Regex::new(regex).unwrap().is_match(path),
        None => path.starts_with(pattern.strip_suffix('*').unwrap()),
    };
    refusals
        .routes
        .iter()
        .find(|rule| matches(&rule.path))
        .is_some_and(|rule| rule.denied)
}

#[test]
fn the_same_is_refused_by_routes() {
    let wiki = [
        ("/data/", "Require all denied"),
        ("/data/public/", "Require all granted"),
        (
            "/",
            "<FilesMatch \"\\.(inc|sql)$\">\nRequire all denied\n</FilesMatch>\n<Files \"VERSION\">\nDeny from all\n</Files>",
        ),
        (
            "/up loads*/",
            "Deny from all\n<Files ~ \"\\.(?i:png|jpe?g)$\">\nAllow from all\n</Files>",
        ),
        (
            "/rules/",
            "RewriteEngine on\nRewriteRule ^(app|config)/ - [F]\nRewriteRule \\.ini$ - [F,NC]",
        ),
    ];
    for path in [
        "/data/",
        "/data/pages/start.txt",
        "/a.sql",
        "/sub/a.inc",
        "/VERSION",
        "/sub/VERSION",
        "/up loads*/x.php",
        "/up loads*/x.png.php",
        "/rules/app/x",
        "/rules/x.INI",
    ] {
        assert!(denied(&wiki, path), "{path}");
    }
    for path in [
        "/",
        "/database",
        "/data/public/a",
        "/a.sql.html",
        "/a.inc/b",
        "/VERSION.txt",
        "/up loads*/x.png",
        "/up loadsx/x.php",
        "/rules/x/app/y",
        "/app/x",
    ] {
        assert!(!denied(&wiki, path), "{path}");
    }
}

/// If an expression over a name cannot be translated exactly, more is denied, never less.
#[test]
fn anchors_within_an_expression_deny_more() {
    let text =
        "<FilesMatch \"(^#.*#|\\.(bak|conf|sql|sw[op])|~)$\">\nRequire all denied\n</FilesMatch>";
    let tree = [("/", text)];
    for path in ["/#x#", "/a.bak", "/sub/a.sql", "/x~", "/x#y#"] {
        assert!(denied(&tree, path), "{path}");
    }
    assert!(!denied(&tree, "/x.html"));
    // A rule that allows something never allows more than it says.
    let open = [(
        "/",
        "Require all denied\n<FilesMatch \"(^a|b$)\">\nRequire all granted\n</FilesMatch>",
    )];
    assert!(denied(&open, "/xab"));
    let open = [(
        "/",
        "Deny from all\n<Files ~ \"(?i)^.*\\.(jpg|png)$\">\nAllow from all\n</Files>",
    )];
    assert!(!denied(&open, "/a/x.JPG") && denied(&open, "/a/x.jpg.php"));
    let alternatives = [(
        "/",
        "<FilesMatch \"^a|b$\">\nRequire all denied\n</FilesMatch>",
    )];
    assert!(denied(&alternatives, "/ax") && denied(&alternatives, "/xb"));
}

#[test]
fn files_are_found_below_a_folder() {
    let root = tempfile::tempdir().unwrap();
    for (name, text) in [
        (".htaccess", "Options -Indexes"),
        ("data/.htaccess", "Deny from all"),
        ("a/b/c/.htaccess", "php_flag engine off"),
        (".git/.htaccess", "Deny from all"),
    ] {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let found = find(root.path(), false);
    assert!(!found.incomplete);
    let said: Vec<String> = found
        .files
        .iter()
        .map(|file| format!("{} {}", file.folder, file.denies().unwrap_or_default()))
        .collect();
    assert_eq!(
        said,
        [
            "/ ",
            "/a/b/c/ runs no scripts in /a/b/c/",
            "/data/ denies /data/ to all"
        ]
    );
    let refusals = refusals(&found);
    let routes: Vec<_> = refusals
        .routes
        .iter()
        .map(|rule| (rule.path.as_str(), rule.denied))
        .collect();
    assert_eq!(routes, [(r"~^/a/b/c/.*\.php", true), ("/data/*", true)]);
    assert_eq!(refusals.routes[1].why, "data/.htaccess: denied to all");
    assert_eq!(refusals.deny_scripts, ["/a/b/c/"]);
}

/// Apache's expressions have look-around. What weir makes of them denies the same or more, but not everything.
#[test]
fn look_around_is_replaced_by_what_denies_as_much() {
    let drupal = r#"<FilesMatch "\.(engine|inc|yml)(~|\.sw[op]|\.bak)?$|^(\.(?!well-known).*|Entries.*|composer\.(json|lock)|web\.config)$|^#.*#$">
        Require all denied
    </FilesMatch>"#;
    let tree = [("/", drupal)];
    for path in [
        "/core.services.yml",
        "/a/b.inc~",
        "/.env",
        "/a/.gitignore",
        "/composer.lock",
        "/Entries.x",
    ] {
        assert!(denied(&tree, path), "{path}");
    }
    for path in [
        "/index.php",
        "/.well-known",
        "/.well-known/x",
        "/.x/y",
        "/a/page.html",
        "/xweb.config",
    ] {
        assert!(!denied(&tree, path), "{path}");
    }
    let others = [(
        "/",
        "RewriteEngine on\nRewriteRule ^(?>app|conf)++/(?=x)x - [F]\nRedirectMatch 403 ^/(?!\\.well-known/)\\.",
    )];
    for path in ["/app/x", "/confapp/x1"] {
        assert!(denied(&others, path), "{path}");
    }
    let below = [("/", "Redirect gone /old/\nRedirect 301 /new /newer")];
    assert!(denied(&below, "/old") && denied(&below, "/old/x"));
    assert!(!denied(&below, "/older") && !denied(&below, "/new"));
    assert!(!denied(&others, "/a/app/x") && !denied(&others, "/.well-known/x"));
    assert!(
        said("<FilesMatch \"^(?!a*b)\">\nRequire all denied\n</FilesMatch>")
            .contains("does not understand")
    );
    let index = [(
        "/",
        "<FilesMatch \"^(?!index)\">\nRequire all denied\n</FilesMatch>",
    )];
    assert!(denied(&index, "/a/indes.php") && !denied(&index, "/a/index.php"));
    let (_, left) = parse(
        "RewriteEngine on\nRewriteRule ^(?=a)a\\.x - [F]\n<FilesMatch \"^(?<!b)a$\">\nDeny from all\n</FilesMatch>",
        "/",
    );
    let widened: Vec<_> = left
        .iter()
        .filter(|left| left.about == About::Widened)
        .map(|left| left.line)
        .collect();
    assert_eq!(widened, [2, 4]);
    let kinds = [(
        "/",
        "<FilesMatch \"^\\.|^(?!oidc)[^.]+$|\\.(?!css|gif|php|txt)[^.]*$\">\nRequire all denied\n</FilesMatch>",
    )];
    for path in ["/x", "/README", "/a.yml", "/a.cs", "/a.", "/a/.x.php", "/i"] {
        assert!(denied(&kinds, path), "{path}");
    }
    for path in ["/", "/a/", "/oidc", "/a.css", "/index.php", "/a.b.txt"] {
        assert!(!denied(&kinds, path), "{path}");
    }
    let but_index = [(
        "/",
        "<FilesMatch \"^(?!index\\.php$|api).*\">\nDeny from all\n</FilesMatch>",
    )];
    for (path, is_denied) in [
        ("/index.php", false),
        ("/index.php5", true),
        ("/apix", false),
        ("/a", true),
    ] {
        assert_eq!(denied(&but_index, path), is_denied, "{path}");
    }
    let section = [(
        "/",
        "<If \"%{REQUEST_URI} =~ m#(?i:/readme(?:\\.md)?|\\.ya?ml)$#\">\nRequire all denied\n</If>",
    )];
    assert!(denied(&section, "/a/Readme.md") && denied(&section, "/x.yml"));
    assert!(!denied(&section, "/x.ymlx"));
    // A name has no slash, and a folder's URL has no name.
    let without_dot = [(
        "/",
        "<FilesMatch \"^[^.]+$\">\nDeny from all\n</FilesMatch>",
    )];
    assert!(denied(&without_dot, "/a.b/README") && !denied(&without_dot, "/a/"));
    // A class with brackets and signs that are operators elsewhere.
    assert!(denied(
        &[(
            "/",
            "<FilesMatch \"^[]&&[~~]+$\">\nDeny from all\n</FilesMatch>"
        )],
        "/&[~]"
    ));
}

#[test]
fn conditions_about_paths_are_kept() {
    let rules = "RewriteEngine on\n\
        RewriteCond %{REQUEST_FILENAME} -f\nRewriteRule \\.ini$ - [F]\n\
        RewriteCond %{REQUEST_URI} ^/private [NC,OR]\nRewriteCond %{REQUEST_URI} \\.key$\nRewriteRule .* - [F]\n\
        RewriteCond %{REQUEST_URI} !/core/[^/]*\\.php$\nRewriteRule ^(.+/.*|autoload)\\.php($|/) - [F]\n";
    let tree = [("/", rules)];
    for path in [
        "/a.ini",
        "/Private/x",
        "/a/b.key",
        "/autoload.php",
        "/core/lib/x.php",
        "/a/b.php",
    ] {
        assert!(denied(&tree, path), "{path}");
    }
    for path in ["/a.txt", "/a/private", "/index.php", "/core/install.php"] {
        assert!(!denied(&tree, path), "{path}");
    }
    let nuke = [(
        "/",
        "RewriteEngine on\nRewriteCond %{REQUEST_FILENAME} /(\\.(.*)|config\\.php)$ [NC]\nRewriteRule ^.* - [L,R=404]\n\
        RewriteCond %{REQUEST_URI} ^/(vendor|data/logs)/.* [NC]\nRewriteRule ^.* - [L,R=404]\n",
    )];
    for path in ["/a/Config.php", "/vendor/x", "/data/logs/a"] {
        assert!(denied(&nuke, path), "{path}");
    }
    for path in ["/", "/index.php", "/a/vendor/x"] {
        assert!(!denied(&nuke, path), "{path}");
    }
    let other = "RewriteEngine on\nRewriteCond %{QUERY_STRING} base64\nRewriteRule .* - [F]";
    assert_eq!(said(other), "limits /data/ by a condition for URLs like .*");
    // weir refuses hidden files by default.
    assert_eq!(
        said(
            "RewriteEngine on\nRewriteCond %{REQUEST_URI} !well-known\nRewriteRule (^|/)\\. - [F]"
        ),
        ""
    );
}

/// Files that only some clients may see are refused to all. A list of clients that are not let in refuses nobody else.
#[test]
fn what_is_for_some_clients_is_for_nobody() {
    for text in [
        "Require ip 10.0.0.0/8",
        "AuthType Basic\nRequire valid-user",
        "Order deny,allow\nDeny from all\nAllow from 127.0.0.1",
        "<RequireAny>\nRequire local\nRequire valid-user\n</RequireAny>",
        "<Files \"x.txt\">\nRequire valid-user\n</Files>",
    ] {
        assert!(denied(&[("/data/", text)], "/data/x.txt"), "{text}");
        assert!(read(text, "/data/").lets_some_in(), "{text}");
    }
    for text in [
        "<RequireAll>\nRequire all granted\nRequire not ip 1.2.3.4\n</RequireAll>",
        "Order allow,deny\nAllow from all\nDeny from 1.2.3.4",
        "Deny from 1.2.3.4",
        "Order allow,deny\nAllow from all\nSatisfy any\nRequire valid-user",
    ] {
        assert!(!denied(&[("/data/", text)], "/data/x.txt"), "{text}");
    }
}

/// Apache applies sections by file name after the rules of folders, also those of outer folders.
#[test]
fn sections_by_file_name_win_over_the_rules_of_inner_folders() {
    let sections =
        "<Files *.sql>\nRequire all denied\n</Files>\n<Files *.css>\nRequire all granted\n</Files>";
    let tree = [
        ("/", sections),
        ("/open/", "Require all granted"),
        ("/shut/", "Require all denied"),
    ];
    for (path, is_denied) in [
        ("/open/a.sql", true),
        ("/open/a", false),
        ("/shut/a", true),
        ("/shut/a.css", false),
    ] {
        assert_eq!(denied(&tree, path), is_denied, "{path}");
    }
    let other = [("/", sections), ("/shut/", "Deny from all")];
    assert!(denied(&other, "/shut/a.css"));
}

/// Each of the two guards must let a client in.
#[test]
fn what_require_allows_may_still_be_denied_by_order() {
    let files = "<FilesMatch \"\\.css$\">\nRequire all granted\n</FilesMatch>";
    let tree = |deny: &'static str, inner: &'static str| [("/", deny), ("/a/", inner)];
    for (deny, inner, is_denied) in [
        ("Deny from all", files, true),
        ("Require all denied", files, false),
        ("Deny from all", "Require all granted", true),
        ("Deny from all", "Allow from all", false),
        (
            "Require all denied\nOrder deny,allow\nDeny from all",
            "Require all granted\nOrder allow,deny\nAllow from all",
            false,
        ),
        ("Require all granted\nDeny from all", "", true),
    ] {
        assert_eq!(
            denied(&tree(deny, inner), "/a/x.css"),
            is_denied,
            "{deny} / {inner}"
        );
    }
}

#[test]
fn lines_without_an_equivalent_are_named() {
    let text = "# a comment\nOptions -Indexes\n<IfModule mod_headers.c>\n  Header set X-Frame-Options DENY\n</IfModule>\n\
        RewriteEngine On\nRewriteRule ^old$ /new [R=301]\nRequire \\\n  valid-user\nErrorDocument 404 /e.php\n";
    let (_, left) = parse(text, "/");
    let said: Vec<_> = left
        .iter()
        .map(|left| (left.line, left.about, left.text.as_str()))
        .collect();
    assert_eq!(
        said,
        [
            (4, About::Other, "Header set X-Frame-Options DENY"),
            (7, About::Rewriting, "RewriteRule ^old$ /new [R=301]"),
            (8, About::SomeClients, "Require   valid-user"),
            (10, About::Other, "ErrorDocument 404 /e.php"),
        ]
    );
}

#[test]
fn a_type_for_one_file_stops_no_scripts() {
    for text in [
        "<Files robots.txt>\nForceType text/plain\n</Files>",
        "RemoveHandler .php\nAddHandler application/x-httpd-php83 .php",
    ] {
        assert_eq!(said(text), "", "{text}");
    }
    for text in [
        "<FilesMatch \"\\.(php|phtml)$\">\nSetHandler none\n</FilesMatch>",
        "php_flag engine off",
    ] {
        assert_eq!(said(text), "runs no scripts in /data/", "{text}");
        assert!(denied(&[("/data/", text)], "/data/a/x.php"), "{text}");
    }
}

/// Where the name of an index file is denied, its folder's URL is denied, too. Links lead to folders with other URLs.
#[test]
fn folders_are_found_by_links_and_by_their_index() {
    let root = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    for (folder, name, text) in [
        (
            &root,
            ".htaccess",
            "<Files *.php>\nDeny from all\n</Files>\n<Files index.php>\nAllow from all\n</Files>",
        ),
        (&root, "index.php", ""),
        (
            &root,
            "lib/.htaccess",
            "<Files *.php>\nDeny from all\n</Files>",
        ),
        (&root, "lib/a/index.php", ""),
        (&root, "lib/b/index.html", ""),
        (&other, "cache/.htaccess", "Deny from all"),
        (&other, "x/rules", "Deny from all"),
    ] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let link = |target: &std::path::Path, name: &str| {
        std::os::unix::fs::symlink(target, root.path().join(name)).unwrap();
    };
    link(&other.path().join("cache"), "cache");
    link(root.path(), "lib/loop");
    link(&other.path().join("x/rules"), "lib/b/.htaccess");
    link(&root.path().join("lib"), "again");
    let folders = |follows| -> Vec<String> {
        let found = find(root.path(), follows);
        found.files.into_iter().map(|file| file.folder).collect()
    };
    assert_eq!(
        folders(false),
        ["/", "/again/", "/again/b/", "/lib/", "/lib/b/"]
    );
    assert_eq!(
        folders(true),
        ["/", "/again/", "/again/b/", "/cache/", "/lib/", "/lib/b/"]
    );
    let refusals = refusals(&find(root.path(), false));
    let first: Vec<_> = refusals
        .routes
        .iter()
        .map(|rule| rule.path.as_str())
        .take(2)
        .collect();
    assert_eq!(first[..2], ["~^/again/a/$", "~^/lib/a/$"]);
}

#[test]
fn names_that_are_not_utf_8_and_files_that_cannot_be_read_are_refused() {
    use std::os::unix::ffi::OsStrExt;
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join(".htaccess"), b"Deny from all # \xff").unwrap();
    fs::create_dir_all(root.path().join("a/.htaccess")).unwrap();
    let found = find(root.path(), false);
    let said: Vec<_> = found.files.iter().filter_map(Htaccess::denies).collect();
    assert_eq!(
        said[0],
        "cannot be read (it is no file), so Apache refuses /a/"
    );
    let refusals = refusals(&found);
    let paths: Vec<_> = refusals
        .routes
        .iter()
        .map(|rule| rule.path.as_str())
        .collect();
    assert_eq!(paths, ["/a/*", "~^/caf[^/]+/"]);
}

proptest! {
    #[test]
    fn any_text_is_taken(text in "\\PC*", lines in proptest::collection::vec(
        "(<|</)?(Files|FilesMatch|Limit|IfModule|RequireAll|If|Require|Order|Deny|Allow|RewriteRule|RedirectMatch|Redirect)( [\"'a-z^$\\[\\]()|~!*?%{}\\\\.]{0,12}){0,3}>?",
        0..12,
    )) {
        for text in [text, lines.join("\n")] {
            for effect in parse(&text, "/a/").0 {
                if let Effect::DeniesFiles(path, _) | Effect::OpensFiles(_, path, _) | Effect::DeniesUrls(path, _) = effect {
                    prop_assert!(regex::Regex::new(&path).is_ok());
                }
            }
        }
    }
}
