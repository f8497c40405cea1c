//! What applications write into their `.htaccess`, and how weir reads it compared with Apache.

use proptest::prelude::*;

use super::*;

fn said(text: &str) -> String {
    let file = Htaccess {
        path: "/srv/.htaccess".into(),
        folder: "/data/".into(),
        effects: parse(text, "/data/"),
    };
    file.denies().unwrap_or_default()
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
            "has files like ^(?!index), which weir does not understand",
        ),
    ] {
        assert_eq!(said(text), expected, "{text}");
    }
}

/// Whether the routes from a tree of such files deny a path.
fn denied(files: &[(&str, &str)], path: &str) -> bool {
    let files: Vec<Htaccess> = files
        .iter()
        .map(|(folder, text)| Htaccess {
            path: format!("/srv{folder}.htaccess").into(),
            folder: (*folder).into(),
            effects: parse(text, folder),
        })
        .collect();
    let refusals = refusals(&files);
    let matches = |pattern: &str| match pattern.strip_prefix('~') {
        Some(regex) => regex::Regex::new(regex).unwrap().is_match(path),
        None => path.starts_with(pattern.strip_suffix('*').unwrap()),
    };
    refusals
        .routes
        .iter()
        .find(|(pattern, _)| matches(pattern))
        .is_some_and(|(_, denied)| *denied)
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
    let found = find(root.path());
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
    let refusals = refusals(&found.files);
    assert_eq!(refusals.routes, [("/data/*".to_owned(), true)]);
    assert_eq!(refusals.deny_scripts, ["/a/b/c/"]);
}

proptest! {
    #[test]
    fn any_text_is_taken(text in "\\PC*", lines in proptest::collection::vec(
        "(<|</)?(Files|FilesMatch|Limit|IfModule|RequireAll|If|Require|Order|Deny|Allow|RewriteRule|RedirectMatch|Redirect)( [\"'a-z^$\\[\\]()|~!*?%{}\\\\.]{0,12}){0,3}>?",
        0..12,
    )) {
        for text in [text, lines.join("\n")] {
            for effect in parse(&text, "/a/") {
                if let Effect::DeniesFiles(path, _) | Effect::OpensFiles(path, _) = effect {
                    prop_assert!(regex::Regex::new(&path).is_ok());
                }
            }
        }
    }
}
