"""Sends changed inputs of fuzz/corpus through a running gateway to an upstream that reads with h11, and compares what
arrives with what h11 makes of the same bytes: `make fuzz-h11`.

Each request that arrives must be one that h11 reads at that place, with the same method, target and content. A gateway
that refuses more than h11 does is right; one that lets a request through which h11 reads otherwise is not.
"""

import argparse
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import h11

CORPUS = pathlib.Path(__file__).parent.parent / "corpus" / "request_against_hyper"
WORDS = [b"\r\n", b"\n", b"\r", b": ", b" ", b"\t", b"\0", b",", b"0\r\n\r\n", b"\r\n\r\n", b"Content-Length: 5\r\n",
         b"Transfer-Encoding: chunked\r\n", b"Host: b\r\n", b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n", b"\xff", b"+", b";"]
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


def read(data):
    """The whole requests at the start of `data`, and whether h11 refused the rest."""
    found = []
    while data:
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(data)
        content, request = b"", None
        while True:
            try:
                event = connection.next_event()
            except h11.RemoteProtocolError:
                return found, True
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return found, False
            if isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                content += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                break
        client = dict(request.headers).get(b"x-forwarded-for")
        found.append((bytes(request.method), target(bytes(request.target)), content, client))
        # A new connection for the next one: this one waits for its answer.
        data, _ = connection.trailing_data
        if connection.their_state is h11.MUST_CLOSE:
            # h11 keeps no connection of HTTP/1.0: it has nothing to say about what follows.
            return found, request.http_version == b"1.0"
    return found, False


def target(raw):
    """In origin-form, as the gateway forwards it."""
    for scheme in (b"http://", b"https://"):
        if raw.lower().startswith(scheme):
            rest = raw[len(scheme):]
            path = min((rest.find(mark) for mark in (b"/", b"?") if mark in rest), default=len(rest))
            rest = rest[path:]
            return rest if rest.startswith(b"/") else b"/" + rest
    return raw


class Upstream:
    """Keeps what it reads, by the client that the gateway names."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        self.seen, self.faults = defaultdict(list), []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            stream, _ = self.listener.accept()
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(stream,), daemon=True).start()

    def serve(self, stream):
        data = b""
        while piece := received(stream):
            data += piece
            found, refused = read(data)
            if refused:
                self.faults.append(data)
                return stream.close()
            if found:
                if len(found) > 1:
                    self.faults.append(data)
                for *request, client in found:
                    self.seen[client].append(tuple(request))
                data = b""
                stream.sendall(ANSWER)


def received(stream):
    try:
        return stream.recv(65536)
    except OSError:
        return b""


def mutate(rng, inputs):
    data = bytearray(rng.choice(inputs))
    for _ in range(rng.randint(0, 4)):
        at = rng.randint(0, len(data))
        match rng.randint(0, 3):
            case 0:
                del data[at:at + rng.randint(0, 10)]
            case 1:
                data[at:at] = rng.choice(WORDS)
            case 2:
                data[at:at] = bytes([rng.randint(0, 255)])
            case 3:
                other = rng.choice(inputs)
                data[at:] = other[rng.randint(0, len(other)):]
    return bytes(data)


def send(port, data, client):
    """Until the gateway has closed, or has answered what it will."""
    with socket.create_connection(("127.0.0.1", port), 5, (client, 0)) as stream:
        try:
            stream.sendall(data)
            stream.settimeout(0.05)
            while stream.recv(65536):
                pass
        except OSError:
            pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("gateway", help="the binary")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    upstream, rng = Upstream(), random.Random(options.seed)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    inputs = [file.read_bytes() for file in sorted(CORPUS.iterdir())]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(
            f"workers: 1\nlisteners: [{{address: '127.0.0.1:{port}'}}]\nadmin: off\n"
            f"upstreams: {{u: {{endpoints: ['http://127.0.0.1:{upstream.port}']}}}}\nroutes: [{{name: all, upstream: u}}]\n"
        )
        file.flush()
        gateway = subprocess.Popen([options.gateway, "run", "--config", file.name], stderr=subprocess.DEVNULL)
        try:
            time.sleep(1)
            tried, arrived = compare(options, rng, inputs, upstream, port)
        finally:
            gateway.kill()
    print(f"{tried} inputs, {arrived} requests arrived, all of them as h11 reads them")
    if arrived < tried / 10:
        sys.exit("too few requests arrived for that to mean something")


def compare(options, rng, inputs, upstream, port):
    """Many at a time: most of them wait."""
    sent, arrived = 0, 0
    end = time.monotonic() + options.seconds
    with ThreadPoolExecutor(64) as clients:
        while time.monotonic() < end:
            batch = {}
            for _ in range(256):
                sent += 1
                address = f"127.{1 + sent // 62500 % 250}.{1 + sent // 250 % 250}.{1 + sent % 250}"
                batch[address] = mutate(rng, inputs)
            list(clients.map(lambda one: send(port, one[1], one[0]), batch.items()))
            if upstream.faults:
                sys.exit(f"an input made the gateway send\n{upstream.faults[0]!r}")
            for address, data in batch.items():
                seen = upstream.seen.pop(address.encode(), [])
                arrived += len(seen)
                check(data, seen)
    return sent, arrived


def check(data, seen):
    expected, refused = read(data)
    if len(seen) > len(expected) and not refused:
        sys.exit(f"{data!r}\n  arrived as {len(seen)} requests, and is {len(expected)}")
    for (method, path, content), (*there, _) in zip(seen, expected):
        # Dot segments are resolved, and slashes merged with them: such paths are not compared.
        rewritten = b"." in there[1] or b"//" in there[1] or there[0] == b"OPTIONS"
        if [method, content] != [there[0], there[2]] or (not rewritten and path != there[1]):
            sys.exit(f"{data!r}\n  arrived as {(method, path, content)}\n  and is read as {there}")


main()
