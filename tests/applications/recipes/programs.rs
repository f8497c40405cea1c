//! Programs in other languages than PHP: git, Python, Go, CGI scripts.

use super::*;

#[test]
fn git_clones_and_pushes_as_the_page_sets_it_up() {
    let recipe = Recipe::of("git over HTTP");
    let folder = recipe.setup.folder().to_owned();
    let (store, work) = (folder.join("git"), folder.join("work"));
    let git = |folder: &Path, words: &[&str]| {
        run(Command::new("git")
            .args([
                "-c",
                "user.name=A",
                "-c",
                "user.email=a@example.org",
                "-c",
                "init.defaultBranch=main",
            ])
            .args(words)
            .current_dir(folder)
            .env("HOME", folder)
            .env("GIT_TERMINAL_PROMPT", "0"))
    };
    git(&folder, &["init", "--bare", "-q", "git/project.git"]);
    git(
        &store.join("project.git"),
        &["config", "http.receivepack", "true"],
    );
    give(&store, USER);
    let weir = recipe.folder("/srv/git", &store).start();
    let url = format!("http://{}/project.git", weir.address());
    fs::create_dir(&work).expect("mkdir");
    git(&work, &["clone", "-q", &url, "one"]);
    let one = work.join("one");
    // More than git sends at once, so it uses a chunked body.
    let noise: Vec<u8> = (0..3_000_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    fs::write(one.join("noise"), noise).expect("a file");
    fs::write(one.join(".gitignore"), "target\n").expect("a file");
    git(&one, &["add", "."]);
    git(&one, &["commit", "-q", "-m", "First"]);
    git(&one, &["push", "-q", "origin", "HEAD:main"]);
    git(&work, &["clone", "-q", "-b", "main", &url, "two"]);
    assert_eq!(
        fs::read(work.join("two/noise")).expect("a file").len(),
        3_000_000
    );
    assert_eq!(
        weir.get("/project.git/HEAD").expect(200).text(),
        "ref: refs/heads/main\n"
    );
    weir.get("/../../etc/passwd").expect(400);
    weir.get("/none.git/HEAD").expect(404);
}

#[test]
fn cgit_as_the_page_sets_it_up() {
    let recipe = Recipe::of("cgit");
    let folder = recipe.setup.folder().to_owned();
    let store = folder.join("git");
    let git = |words: &[&str]| {
        let identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"];
        let mut command = Command::new("git");
        run(command
            .args(identity)
            .args(words)
            .current_dir(&folder)
            .env("HOME", &folder))
    };
    git(&["init", "-q", "-b", "main", "work"]);
    fs::write(folder.join("work/words.txt"), "some words\n").expect("a file");
    git(&["-C", "work", "add", "."]);
    git(&["-C", "work", "commit", "-q", "-m", "A first commit"]);
    git(&["clone", "-q", "--bare", "work", "git/project.git"]);
    give(&store, USER);
    let settings = block("cgit", "text", 0).replace("/srv/git", &store.display().to_string());
    write(&folder.join("cgitrc"), settings.as_bytes());
    let weir = recipe.folder("/etc/cgitrc", &folder.join("cgitrc")).start();
    for (path, words) in [
        ("/", "project.git"),
        ("/project.git/log/", "A first commit"),
        ("/project.git/plain/words.txt", "some words"),
        ("/cgit-css/cgit.css", "cgit"),
    ] {
        let page = weir.get(path).expect(200);
        assert!(page.text().contains(words), "{path}: {}", page.text());
    }
    let url = format!("http://{}/project.git", weir.address());
    git(&["clone", "-q", &url, "copy"]);
    assert_eq!(
        fs::read_to_string(folder.join("copy/words.txt")).expect("a file"),
        "some words\n"
    );
}

#[test]
fn a_python_application_as_the_page_sets_it_up() {
    let recipe = Recipe::of("Python");
    let folder = recipe.setup.folder().to_owned();
    let application = "def application(environ, start_response):\n\
        \x20   body = environ['wsgi.input'].read(int(environ.get('CONTENT_LENGTH') or 0)).decode()\n\
        \x20   text = '|'.join([environ['REQUEST_METHOD'], environ['SCRIPT_NAME'], environ['PATH_INFO'], environ['QUERY_STRING'], body])\n\
        \x20   start_response('200 OK', [('Content-Type', 'text/plain')])\n\
        \x20   return [text.encode()]\n";
    write(&folder.join("app/app.py"), application.as_bytes());
    write(&folder.join("app/static/style.css"), b"a {}");
    let weir = recipe
        .folder(
            "/srv/app/",
            Path::new(&format!("{}/app/", folder.display())),
        )
        .start();
    asks_the_application(&weir);
}

#[test]
fn a_go_application_as_the_page_sets_it_up() {
    let recipe = Recipe::of("Go");
    let folder = recipe.setup.folder().to_owned();
    let source = block("Go", "go", 0);
    let line = "fmt.Fprintf(w, \"%s %s\\n\", r.Method, r.URL.Path)";
    assert!(source.contains(line), "{source}");
    let source = source
        .replace(line, "b, _ := io.ReadAll(r.Body); fmt.Fprintf(w, \"%s||%s|%s|%s\", r.Method, r.URL.Path, r.URL.RawQuery, b)")
        .replace("import (\n", "import (\n\t\"io\"\n");
    write(&folder.join("app/main.go"), source.as_bytes());
    fs::create_dir_all(folder.join("app/bin")).expect("mkdir");
    run(Command::new("/usr/bin/go")
        .args(["build", "-o", "bin/app", "main.go"])
        .current_dir(folder.join("app"))
        .env("HOME", &folder)
        .env("GO111MODULE", "off")
        .env("GOCACHE", folder.join("cache"))
        .env("GOFLAGS", ""));
    write(&folder.join("app/static/style.css"), b"a {}");
    let weir = recipe
        .folder(
            "/srv/app/",
            Path::new(&format!("{}/app/", folder.display())),
        )
        .start();
    asks_the_application(&weir);
}

/// Requests a file and the application several times: the application must keep running.
#[track_caller]
fn asks_the_application(weir: &Weir) {
    assert_eq!(weir.get("/style.css").expect(200).text(), "a {}");
    for number in 0..20 {
        let said = weir
            .get(&format!("/red%20shoe/{number}?a=b%20c"))
            .expect(200)
            .text();
        assert_eq!(said, format!("GET||/red shoe/{number}|a=b%20c|"));
        let said = weir
            .request("POST", "/", &[], format!("body {number}").as_bytes())
            .expect(200)
            .text();
        assert_eq!(said, format!("POST||/||body {number}"));
    }
}

#[test]
fn cgi_programs_as_the_page_sets_them_up() {
    let recipe = Recipe::of("Perl and CGI programs");
    let root = recipe.setup.root();
    let script = "#!/usr/bin/perl\nprint \"Content-Type: text/plain\\r\\n\\r\\n$ENV{SCRIPT_NAME}|$ENV{PATH_INFO}\";\n";
    write(&root.join("hello.cgi"), script.as_bytes());
    mode(&root.join("hello.cgi"), 0o755);
    let weir = recipe.folder("/srv/cgi", &root).start();
    assert_eq!(weir.get("/hello.cgi").expect(200).text(), "/hello.cgi|");
    assert_eq!(
        weir.get("/hello.cgi/r.git/.gitignore").expect(200).text(),
        "/hello.cgi|/r.git/.gitignore"
    );
    weir.get("/none.cgi").expect(404);
}

/// Checks the whole page: each recipe on it must have a test.
#[test]
fn each_recipe_of_the_page_is_one_that_is_tested() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/recipes.md");
    let page = fs::read_to_string(page).expect("docs/recipes.md");
    let tests = [
        include_str!("php.rs"),
        include_str!("frameworks.rs"),
        include_str!("programs.rs"),
        include_str!("databases.rs"),
    ]
    .concat();
    let headings: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    assert!(headings.len() >= 10, "{headings:?}");
    for heading in headings {
        assert!(
            tests.contains(&format!("\"{heading}\"")),
            "no test for {heading}"
        );
    }
}
