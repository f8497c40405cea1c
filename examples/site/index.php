<?php
// Shows what PHP knows of this request, and links to the other examples.
$e = fn ($value) => htmlspecialchars((string) $value, ENT_QUOTES | ENT_SUBSTITUTE, 'UTF-8');
$facts = [
    'Server' => $_SERVER['SERVER_SOFTWARE'] ?? '',
    'PHP' => PHP_VERSION . ' (' . PHP_SAPI . ')',
    'Worker' => 'process ' . getmypid(),
    'Request' => ($_SERVER['REQUEST_METHOD'] ?? '') . ' ' . ($_SERVER['REQUEST_URI'] ?? ''),
    'Client' => ($_SERVER['REMOTE_ADDR'] ?? '') . ' port ' . ($_SERVER['REMOTE_PORT'] ?? ''),
    'Script' => $_SERVER['SCRIPT_NAME'] ?? '',
];
?>
<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>weir is serving this page</title>
  <link rel="icon" href="/weir.svg" type="image/svg+xml">
  <link rel="stylesheet" href="/style.css">
  <script src="/page.js" defer></script>
</head>
<body>
<header>
  <img src="/weir.svg" alt="" width="72" height="72">
  <div>
    <h1>weir is serving this page</h1>
    <p>PHP <?= $e(PHP_VERSION) ?> wrote it. The picture, the style and the script beside it are files that no PHP worker
    saw. Any URL that is no file, <a href="/any/path/at/all?like=this">this one</a> for instance, comes to
    <code>index.php</code> too.</p>
  </div>
</header>

<main>
  <section>
    <h2>This request</h2>
    <dl>
<?php foreach ($facts as $name => $value): ?>
      <dt><?= $e($name) ?></dt><dd><?= $e($value) ?></dd>
<?php endforeach ?>
    </dl>
    <p><a href="/hello.php/a/b?c=d">hello.php/a/b?c=d</a> runs <code>hello.php</code> and shows what it is told of the
    rest.</p>
  </section>

  <section>
    <h2>Queue</h2>
    <p>Twelve requests for a script that takes half a second, as many at once as the browser allows. Those that find no
    free worker wait in weir's queue, first come, first served.</p>
    <p><button id="burst">Send twelve</button> <span id="burst-said"></span></p>
    <ol id="bars"></ol>
  </section>

  <section>
    <h2>Stream</h2>
    <p>Events pass as the script writes them.</p>
    <p><button id="again">Again</button> <output id="ticks"></output></p>
  </section>

  <section>
    <h2>Form and upload</h2>
    <form action="/form.php" method="post">
      <label>Name <input name="name" autocomplete="off" required></label>
      <button>Post</button>
    </form>
    <form action="/form.php" method="post" enctype="multipart/form-data">
      <label>File <input name="file" type="file" required></label>
      <button>Upload</button>
    </form>
    <p>A worker is asked for once the whole body is here, so a slow upload keeps nobody waiting.</p>
  </section>
</main>
</body>
</html>
