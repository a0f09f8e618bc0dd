#!/usr/bin/env python3
"""What a browser makes of the gateway: `make browser`.

Debian's chromium gets a page over TLS and HTTP/2 with a stylesheet that a 103 named before, opens a WebSocket over
HTTP/2, and reads a 429 of another origin.

    tests/browser/speaks_http.py BINARY
"""

import asyncio
import base64
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from driver import Browser, free_port

# RFC 6455 §1.3.
WEBSOCKET_ID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
STYLE = b"p { color: rgb(1, 2, 3) }"
PAGE = b"<!doctype html><title>shop</title><link rel=stylesheet href=/style.css><p>hello"

FILE = """
workers: 2
access_log: {{format: json, to: '{log}'}}
listeners:
  - {{address: '127.0.0.1:{pages}', tls: {{certificates: [{{cert: '{cert}', key: '{key}'}}]}}}}
  - {{address: '127.0.0.1:{api}', tls: {{certificates: [{{cert: '{cert}', key: '{key}'}}]}}}}
admin: {{address: '127.0.0.1:{admin}'}}
limits: {{once: {{key: client_ip, rate: 1/h, burst: 1}}}}
upstreams: {{app: {{endpoints: ['http://127.0.0.1:{upstream}']}}}}
routes:
  - name: api
    match: {{path: /api/*}}
    limits: [once]
    cors: {{origins: ['https://127.0.0.1:{pages}'], headers: [x-shop]}}
    upstream: app
  - {{name: app, match: {{path: /*}}, upstream: app}}
"""


class Application:
    """An upstream with a page that takes its time and a 103 before it, a stylesheet, an API and a WebSocket that echoes."""

    def __init__(self):
        self.port = free_port()
        # The paths, in the order of their answers.
        self.answered = []
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(asyncio.start_server(self.connection, "127.0.0.1", self.port))
        self.loop.run_forever()

    async def connection(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                path = head.split()[1]
                if path == "/ws":
                    key = re.search(r"(?im)^sec-websocket-key: (\S+)", head)[1]
                    return await self.echo(key.encode(), reader, writer)
                if path == "/":
                    writer.write(b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload; as=style\r\n\r\n")
                    await writer.drain()
                    await asyncio.sleep(0.3)
                self.answered.append(path)
                kind, body = ("text/css", STYLE) if path.endswith(".css") else ("text/html", PAGE)
                fields = f"content-type: {kind}\r\ncontent-length: {len(body)}"
                writer.write(f"HTTP/1.1 200 OK\r\n{fields}\r\n\r\n".encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def echo(self, key, reader, writer):
        proof = base64.b64encode(hashlib.sha1(key + WEBSOCKET_ID).digest())
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n")
        writer.write(b"sec-websocket-accept: " + proof + b"\r\n\r\n")
        while True:
            first, length = await reader.readexactly(2)
            mask = await reader.readexactly(4)
            data = bytes(byte ^ mask[n % 4] for n, byte in enumerate(await reader.readexactly(length & 0x7F)))
            writer.write(bytes([first, len(data)]) + data)
            await writer.drain()
            if first & 0x0F == 8:
                return writer.close()


class Gateway:
    def __init__(self, binary, directory):
        self.pages, self.api, self.admin = free_port(), free_port(), free_port()
        self.application = Application()
        self.certificate, key, self.log = directory / "cert.pem", directory / "key.pem", directory / "access.log"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        command += ["-keyout", key, "-out", self.certificate, "-subj", "/CN=localhost"]
        command += ["-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run(command, check=True, capture_output=True)
        file = directory / "routes.yaml"
        file.write_text(FILE.format(
            log=self.log, pages=self.pages, api=self.api, admin=self.admin, cert=self.certificate, key=key,
            upstream=self.application.port,
        ))
        self.process = subprocess.Popen([binary, "run", "--config", file], stdout=subprocess.DEVNULL)
        end = time.monotonic() + 15
        while True:
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/readyz").close()
            except OSError:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise
                time.sleep(0.05)

    def lines(self):
        # The last may be half written.
        text = self.log.read_text() if self.log.exists() else ""
        return [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)


def page(browser, gateway):
    browser.goto(f"https://127.0.0.1:{gateway.pages}/")
    told = browser.run("""
        return {
            protocol: performance.getEntriesByType('navigation')[0].nextHopProtocol,
            color: getComputedStyle(document.querySelector('p')).color,
        };
    """)
    expect(told, {"protocol": "h2", "color": "rgb(1, 2, 3)"})
    # The 103 went through at once: the stylesheet was asked for while the page was still made.
    expect(gateway.application.answered[:2], ["/style.css", "/"])


def websocket(browser, gateway):
    told = browser.run("""
        const socket = new WebSocket(`wss://${location.host}/ws`);
        const answer = await new Promise((resolve, reject) => {
            socket.onopen = () => socket.send('hello');
            socket.onmessage = event => resolve(event.data);
            socket.onerror = () => reject('the socket failed');
        });
        const closed = new Promise(resolve => socket.onclose = resolve);
        socket.close();
        await closed;
        return answer;
    """)
    expect(told, "hello")
    # Its line comes when the tunnel has ended.
    end = time.monotonic() + 10
    while not (found := [line for line in gateway.lines() if line["path"] == "/ws"]) and time.monotonic() < end:
        time.sleep(0.05)
    expect([(line["status"], line["protocol"]) for line in found], [(101, "HTTP/2")])


def denial(browser, gateway):
    """A field that is not on the safelist takes a preflight, which takes no token."""
    told = browser.run("""
        const told = [];
        for (let at = 0; at < 2; at++) {
            const response = await fetch(args[0], {headers: {'x-shop': '1'}});
            const kind = response.headers.get('content-type');
            told.push({
                status: response.status,
                limit: response.headers.get('ratelimit')?.split(';')[0] ?? null,
                waits: Number(response.headers.get('retry-after')) > 3000,
                violated: kind.includes('problem+json') ? (await response.json())['violated-policies'] : null,
            });
        }
        return told;
    """, f"https://127.0.0.1:{gateway.api}/api/things")
    passed = {"status": 200, "limit": '"once"', "waits": False, "violated": None}
    denied = {"status": 429, "limit": '"once"', "waits": True, "violated": ["once"]}
    expect(told, [passed, denied])
    # Its own line, and those of requests before it, may not be written yet.
    end = time.monotonic() + 15
    while not any(line["status"] == 429 for line in gateway.lines()) and time.monotonic() < end:
        time.sleep(0.05)
    expect([line["status"] for line in gateway.lines() if line["method"] == "OPTIONS"], [200])


def expect(told, expected):
    if told != expected:
        sys.exit(f"browser: expected {expected}\nbrowser: but it is {told}")


def main():
    with tempfile.TemporaryDirectory() as name, Gateway(sys.argv[1], Path(name)) as gateway:
        with Browser(gateway.certificate) as browser:
            for test in (page, websocket, denial):
                test(browser, gateway)
                print(f"{test.__name__}: ok", flush=True)


if __name__ == "__main__":
    main()
