//! Frameworks with a front controller: small applications that use Debian's packages.

use super::*;

#[test]
fn symfony_as_the_page_sets_it_up() {
    let recipe = Recipe::of("Symfony");
    let folder = recipe.setup.folder().to_owned();
    let release = folder.join("releases/1");
    let kernel = "<?php\n\
        require '/usr/share/php/Symfony/Bundle/FrameworkBundle/autoload.php';\n\
        use Symfony\\Bundle\\FrameworkBundle\\FrameworkBundle;\n\
        use Symfony\\Bundle\\FrameworkBundle\\Kernel\\MicroKernelTrait;\n\
        use Symfony\\Component\\DependencyInjection\\Loader\\Configurator\\ContainerConfigurator;\n\
        use Symfony\\Component\\HttpFoundation\\JsonResponse;\n\
        use Symfony\\Component\\HttpFoundation\\Request;\n\
        use Symfony\\Component\\HttpKernel\\Kernel as Base;\n\
        use Symfony\\Component\\Routing\\Loader\\Configurator\\RoutingConfigurator;\n\
        class Kernel extends Base {\n\
            use MicroKernelTrait;\n\
            public function registerBundles(): iterable { return [new FrameworkBundle()]; }\n\
            public function getProjectDir(): string { return dirname(__DIR__); }\n\
            protected function configureContainer(ContainerConfigurator $c): void {\n\
                $c->extension('framework', ['secret' => 's', 'http_method_override' => false, 'router' => ['utf8' => true]]);\n\
            }\n\
            protected function configureRoutes(RoutingConfigurator $routes): void {\n\
                $routes->add('item', '/item/{name}')->controller([$this, 'item'])->requirements(['name' => '.+']);\n\
            }\n\
            public function item(Request $r, string $name): JsonResponse {\n\
                return new JsonResponse(['name' => $name, 'env' => $this->environment, 'method' => $r->getMethod(),\n\
                    'base' => $r->getBaseUrl(), 'uri' => $r->getUri(), 'body' => $r->getContent()]);\n\
            }\n\
        }\n\
        $kernel = new Kernel($_SERVER['APP_ENV'], false);\n\
        $request = Request::createFromGlobals();\n\
        $response = $kernel->handle($request);\n\
        $response->send();\n\
        $kernel->terminate($request, $response);\n";
    write(&release.join("public/index.php"), kernel.as_bytes());
    write(&release.join("public/build/app.1.css"), b"a {}");
    write(&release.join("public/other.php"), b"<?php echo 'no';");
    fs::create_dir_all(release.join("var")).expect("mkdir");
    write(&release.join("bin/console"), PROGRAM);
    give(&release, USER);
    std::os::unix::fs::symlink("releases/1", folder.join("current")).expect("a link");
    let weir = recipe
        .folder("/srv/app/", Path::new(&format!("{}/", folder.display())))
        .start();
    let host = weir.address();
    let ask = |method: &str, path: &str, body: &[u8]| -> serde_json::Value {
        let host = [("Host", "shop.example")];
        let text = weir.request(method, path, &host, body).expect(200).text();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    let said = ask("GET", "/item/red%20shoe?size=9", b"");
    assert_eq!(
        (&said["name"], &said["env"]),
        (&"red shoe".into(), &"prod".into()),
        "{said}"
    );
    assert_eq!(
        said["uri"], "http://shop.example/item/red%20shoe?size=9",
        "{host}"
    );
    // A slash within a name, as the client wrote it.
    assert_eq!(ask("GET", "/item/a%2Fb", b"")["name"], "a/b");
    assert_eq!(ask("GET", "/index.php/item/x", b"")["base"], "/index.php");
    assert_eq!(ask("PUT", "/item/x", b"{\"a\":1}")["body"], "{\"a\":1}");
    assert_eq!(
        weir.get("/build/app.1.css")
            .expect(200)
            .header("cache-control"),
        Some("public, max-age=31536000, immutable")
    );
    weir.get("/item/").expect(404);
    assert_ne!(weir.get("/other.php").text(), "no", "one script only");
    let ran = ran(&weir, &release);
    assert!(
        ran.starts_with("messenger:consume async --time-limit=3600"),
        "{ran}"
    );
    assert!(ran.ends_with(" prod"), "{ran}");
}

/// Notes with which arguments and in which environment it was started, beside its folder, and works until it is told to end.
const PROGRAM: &[u8] = b"<?php
    $words = implode(' ', array_slice($argv, 1)) . ' ' . getenv('APP_ENV');
    file_put_contents(dirname(realpath($argv[0])) . '/ran', $words);
    pcntl_async_signals(true);
    pcntl_signal(SIGTERM, fn () => exit(0));
    if ($argv[1] != 'schedule:run') while (true) sleep(1);";

/// What [`PROGRAM`] has noted below this folder. Its processes still run.
fn ran(weir: &Weir, folder: &Path) -> String {
    let mut found = String::new();
    weir_test::wait_until("the program of the page runs", || {
        let notes = ["ran", "bin/ran"].map(|name| fs::read_to_string(folder.join(name)));
        found = notes.into_iter().find_map(Result::ok).unwrap_or_default();
        !found.is_empty()
    });
    let log = weir.stderr();
    assert!(!log.contains("program failed"), "{log}");
    found
}

#[test]
fn laravel_as_the_page_sets_it_up() {
    let recipe = Recipe::of("Laravel");
    let folder = recipe.setup.folder().to_owned();
    let index = "<?php\n\
        require '/usr/share/php/Illuminate/autoload.php';\n\
        use Illuminate\\Http\\Request;\n\
        $app = new Illuminate\\Container\\Container();\n\
        Illuminate\\Container\\Container::setInstance($app);\n\
        $events = new Illuminate\\Events\\Dispatcher($app);\n\
        $router = new Illuminate\\Routing\\Router($events, $app);\n\
        $router->any('/users/{name}', function (Request $request, $name) {\n\
            return ['name' => $name, 'query' => $request->query('page'), 'path' => $request->path(),\n\
                'input' => $request->input('note'), 'file' => $request->file('file') ? $request->file('file')->getSize() : null];\n\
        });\n\
        $request = Request::capture();\n\
        $app->instance(Request::class, $request);\n\
        try { $router->dispatch($request)->send(); }\n\
        catch (Symfony\\Component\\HttpKernel\\Exception\\NotFoundHttpException $e) { http_response_code(404); echo 'no such page'; }\n";
    let public = folder.join("app/public");
    write(&public.join("index.php"), index.as_bytes());
    write(&public.join("build/app.js"), b"1;");
    write(&folder.join("app/artisan"), PROGRAM);
    give(&folder.join("app"), USER);
    write(&folder.join("app/storage/app/public/photo.jpg"), b"JPEG");
    std::os::unix::fs::symlink("../storage/app/public", public.join("storage")).expect("a link");
    let weir = recipe
        .folder(
            "/srv/app/",
            Path::new(&format!("{}/app/", folder.display())),
        )
        .start();
    let said: serde_json::Value =
        serde_json::from_str(&weir.get("/users/ann?page=2").expect(200).text()).expect("JSON");
    assert_eq!(
        (&said["name"], &said["query"]),
        (&"ann".into(), &"2".into()),
        "{said}"
    );
    let headers = [("Content-Type", "application/x-www-form-urlencoded")];
    let posted = weir.request(
        "POST",
        "/users/bob",
        &headers,
        form(&[("note", "a b&c")]).as_bytes(),
    );
    let said: serde_json::Value = serde_json::from_str(&posted.expect(200).text()).expect("JSON");
    assert_eq!(said["input"], "a b&c");
    assert_eq!(weir.get("/nothing").expect(404).text(), "no such page");
    assert_eq!(weir.get("/storage/photo.jpg").expect(200).text(), "JPEG");
    assert_ne!(
        weir.get("/storage/none.jpg").expect(404).text(),
        "no such page"
    );
    weir.get("/build/app.js").expect(200);
    let ran = ran(&weir, &folder.join("app"));
    assert!(
        ran.starts_with("queue:work --max-time=3600") || ran.starts_with("schedule:run"),
        "{ran}"
    );
}
