"""Origins over TLS that misbehave: `misbehave.py ADDRESS CERTIFICATE KEY KIND=PORT...`. lib/origins.py lists the kinds."""

import asyncio
import socket
import ssl
import struct
import sys

# Connections are kept at most this long, seconds.
PATIENCE = 600
LINE = b"X-More: " + b"and more " * 100 + b"\r\n"


async def main():
    address, certificate, key, *kinds = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    for kind, port in (kind.split("=") for kind in kinds):
        tls = {"ssl": None if kind == "silent" else context, "backlog": 1024}
        await asyncio.start_server(lambda r, w, kind=kind: answer(kind, r, w), address, int(port), **tls)
    await asyncio.Event().wait()


async def answer(kind, reader, writer):
    """One connection."""
    try:
        if kind != "silent":
            await reader.readuntil(b"\r\n\r\n")
        await asyncio.wait_for(KINDS[kind](reader, writer), PATIENCE)
    except (OSError, EOFError, asyncio.TimeoutError, asyncio.LimitOverrunError):
        pass
    finally:
        writer.transport.abort()


async def nothing(reader, writer):
    # Until the other side closes.
    while await reader.read(65536):
        pass


async def reset(_reader, writer):
    # A close with a linger time of zero sends a reset.
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


async def half(_reader, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\r\n" + b"x" * 512)
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def endless_head(_reader, writer):
    writer.write(b"HTTP/1.1 200 OK\r\n")
    # First more than a client reads soon; then slowly, or this program would keep the machine busy.
    for number in range(PATIENCE * 100):
        if writer.transport.is_closing():
            return
        writer.write(LINE)
        await writer.drain()
        await asyncio.sleep(0 if number < 300 else 0.01)


KINDS = {"silent": nothing, "no-answer": nothing, "reset": reset, "half": half, "endless-head": endless_head}

if __name__ == "__main__":
    asyncio.run(main())
