//! Real programs that speak HTTP behind weir: a server in Node.js with the package ws, and an ASGI application in Python.

use std::{
    fs,
    io::Write,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
};

use weir_test::{Setup, Weir, free_address, wait_until};

/// A program that ends with the test.
struct Program {
    child: Child,
    address: SocketAddr,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a program that listens on the address in its last argument or in PORT.
fn run(folder: &Path, command: &mut Command, address: SocketAddr) -> Program {
    let log = fs::File::create(folder.join("program.log")).expect("a log");
    let child = command
        .current_dir(folder)
        .env("PORT", address.port().to_string())
        .env("HOST", address.ip().to_string())
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a descriptor"))
        .stderr(log)
        .spawn();
    let program = Program {
        child: child.expect("the program is installed by setup/install.sh"),
        address,
    };
    wait_until("the program listens", || {
        std::net::TcpStream::connect(address).is_ok()
    });
    program
}

fn behind(program: &Program, setup: Setup) -> Weir {
    let lines = format!(
        "runtime = \"servers\"\nprotocol = \"http\"\nservers = [\"{}\"]\n",
        program.address
    );
    setup.pool(&lines).start()
}

/// What both programs do: they say what they were asked, and count the bytes of bodies.
fn expect_usual_answers(weir: &Weir) {
    let answer = weir
        .request("GET", "/hello%20you?a=1", &[("Cookie", "x=y")], b"")
        .expect(200);
    assert_eq!(
        answer.text(),
        "GET /hello%20you?a=1 cookie=x=y for=127.0.0.1 body=0"
    );
    let body = vec![b'x'; 300_000];
    let answer = weir.request("POST", "/upload", &[], &body).expect(200);
    assert_eq!(
        answer.text(),
        "POST /upload cookie=- for=127.0.0.1 body=300000"
    );
    // Kept connections on both sides.
    let mut client = weir.client();
    for _ in 0..20 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client.response().expect(200);
    }
    let mut client = weir.client();
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.response_to("HEAD").expect(200);
}

/// A WebSocket client of another maker: it sends these texts, and they must come back.
fn expect_websocket(weir: &Weir, folder: &Path) {
    let script = "
        import asyncio, sys, websockets
        async def main():
            async with websockets.connect(sys.argv[1]) as socket:
                for text in ['hello', 'x' * 200, 'y' * 70000, '']:
                    await socket.send(text)
                    assert await socket.recv() == 'echo ' + text
                await socket.ping()
        asyncio.run(main())
    ";
    let script: Vec<&str> = script
        .lines()
        .map(|line| line.strip_prefix("        ").unwrap_or(""))
        .collect();
    fs::write(folder.join("client.py"), script.join("\n")).expect("a script");
    let ended = Command::new("/usr/bin/python3")
        .arg(folder.join("client.py"))
        .arg(format!("ws://{}/chat", weir.address()))
        .output()
        .expect("python3");
    assert!(
        ended.status.success(),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
}

#[test]
fn a_server_in_node() {
    let setup = Setup::new();
    let script = setup.path("server.js");
    let mut file = fs::File::create(&script).expect("a script");
    file.write_all(NODE.as_bytes()).expect("a script");
    let mut node = Command::new("/usr/bin/node");
    let program = run(setup.folder(), node.arg(&script), free_address());
    let weir = behind(&program, setup);
    expect_usual_answers(&weir);
    expect_websocket(&weir, weir.folder());
}

#[test]
fn an_asgi_application_in_python() {
    let setup = Setup::new();
    fs::write(setup.path("app.py"), PYTHON).expect("a script");
    let address = free_address();
    let mut python = Command::new("/usr/bin/python3");
    python.args([
        "-m",
        "uvicorn",
        "--no-access-log",
        "--no-proxy-headers",
        "app:app",
        "--host",
    ]);
    python.args([
        address.ip().to_string(),
        "--port".to_owned(),
        address.port().to_string(),
    ]);
    let program = run(setup.folder(), &mut python, address);
    let weir = behind(&program, setup);
    expect_usual_answers(&weir);
    expect_websocket(&weir, weir.folder());
}

const NODE: &str = "
const http = require('http');
const { WebSocketServer } = require('/usr/share/nodejs/ws');
const server = http.createServer((request, response) => {
  let length = 0;
  request.on('data', (data) => { length += data.length; });
  request.on('end', () => {
    const cookie = request.headers.cookie || '-';
    response.end(`${request.method} ${request.url} cookie=${cookie} for=${request.headers['x-forwarded-for']} body=${length}`);
  });
});
const sockets = new WebSocketServer({ server });
sockets.on('connection', (socket) => {
  socket.on('message', (data) => socket.send('echo ' + data));
});
server.listen(process.env.PORT, process.env.HOST);
";

const PYTHON: &str = "
async def app(scope, receive, send):
    if scope['type'] == 'lifespan':
        while True:
            message = await receive()
            await send({'type': message['type'] + '.complete'})
            if message['type'] == 'lifespan.shutdown':
                return
    if scope['type'] == 'websocket':
        await receive()
        await send({'type': 'websocket.accept'})
        while True:
            message = await receive()
            if message['type'] == 'websocket.disconnect':
                return
            await send({'type': 'websocket.send', 'text': 'echo ' + message['text']})
    length, more = 0, True
    while more:
        message = await receive()
        length += len(message.get('body', b''))
        more = message.get('more_body', False)
    fields = dict(scope['headers'])
    target = scope['raw_path'] + (b'?' + scope['query_string'] if scope['query_string'] else b'')
    cookie, client = fields.get(b'cookie', b'-'), fields[b'x-forwarded-for']
    text = f\"{scope['method']} {target.decode()} cookie={cookie.decode()} for={client.decode()} body={length}\"
    await send({'type': 'http.response.start', 'status': 200, 'headers': [(b'content-length', str(len(text)).encode())]})
    await send({'type': 'http.response.body', 'body': text.encode()})
";
