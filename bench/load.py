"""Clients: as many requests as they can (wrk; over HTTP/2 h2load), so many a second (h2load), or connections that only
wait.

Guarantees that a load which did not work is a failure and never a figure.
"""

import os
import pathlib
import re
import socket
import ssl
import subprocess
import threading
import time
from dataclasses import dataclass

import machine
from service import Failed

SCRIPT = pathlib.Path(__file__).with_name("wrk.lua")


# Of a load: the median, one in a hundred, one in a thousand.
LATENCIES = ("p50_ms", "p99_ms", "p999_ms")


@dataclass
class Load:
    requests: int
    seconds: float
    not_2xx: int
    broken: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    cpu_seconds: float


def run(command, environment, more):
    """The output, and the CPU time it took. Kills it when it does not end."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
        preexec_fn=lambda: os.sched_setaffinity(0, {machine.LOAD_CPU}),
    )
    guard = threading.Timer(more, process.kill)
    guard.start()
    try:
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
    finally:
        guard.cancel()
        if process.returncode is None:
            process.kill()
            process.wait()
    return output, usage.ru_utime + usage.ru_stime


def scheme(tls):
    return "https" if tls else "http"


def flat_out(port, seconds, connections=64, path="/", tls=False, **options):
    """Each connection sends the next request when it has the answer. `options` are those of wrk.lua."""
    environment = {name.upper(): str(value) for name, value in options.items()}
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", str(SCRIPT)]
    output, cpu = run([*command, f"{scheme(tls)}://127.0.0.1:{port}{path}"], environment, seconds + 30)
    told = {name: float(value) for name, value in re.findall(r"^(\w+)=([\d.]+)$", output, re.M)}
    if not told.get("requests"):
        raise Failed(f"wrk got no answer: {output[-400:]}")
    return Load(
        requests=int(told["requests"]),
        seconds=told["microseconds"] / 1e6,
        not_2xx=int(told["not_2xx"]),
        broken=int(told["broken"]),
        p50_ms=told["p50"] / 1e3,
        p99_ms=told["p99"] / 1e3,
        p999_ms=told["p999"] / 1e3,
        cpu_seconds=cpu,
    )


def at_rate(port, seconds, rate, scratch, connections=64):
    """`rate` requests a second in all, whether or not earlier ones are answered, as far as there are connections."""
    return h2load(port, seconds, scratch, ["--h1", f"-c{connections}", f"--rps={rate / connections:.2f}"])


def over_http2(port, seconds, streams, scratch, connections=8, tls=False):
    """HTTP/2. Each stream that ends is followed by another: `streams` at once on each connection."""
    return h2load(port, seconds, scratch, [f"-c{connections}", f"-m{streams}"], tls)


def h2load(port, seconds, scratch, options, tls=False):
    log = pathlib.Path(scratch) / "h2load.log"
    log.unlink(missing_ok=True)
    command = ["h2load", "-t1", f"-D{seconds}", *options, f"--log-file={log}", f"{scheme(tls)}://127.0.0.1:{port}/"]
    output, cpu = run(command, {}, seconds + 30)
    # When it began, its status, and how long it took in microseconds.
    rows = [line.split("\t") for line in log.read_text().splitlines()] if log.exists() else []
    told = re.search(r"(\d+) errored, (\d+) timeout", output)
    if not rows or not told:
        raise Failed(f"h2load got no answer: {output[-400:]}")
    took = sorted(int(row[2]) for row in rows)
    at = lambda share: took[min(len(took) - 1, int(len(took) * share))] / 1e3
    not_2xx = sum(not row[1].startswith("2") for row in rows)
    broken = int(told[1]) + int(told[2])
    return Load(len(rows), float(seconds), not_2xx, broken, at(0.5), at(0.99), at(0.999), cpu)


def handshakes(port, seconds):
    """One connection after the other, each with a whole handshake and one request. This process is the client, since
    wrk resumes sessions."""
    unverified = ssl._create_unverified_context()
    took, not_2xx, broken = [], 0, 0
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        sent = time.monotonic()
        try:
            with unverified.wrap_socket(socket.create_connection(("127.0.0.1", port), 5)) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
            not_2xx += not answer.startswith(b"HTTP/1.1 2")
        except OSError:
            broken += 1
        took.append(1e3 * (time.monotonic() - sent))
    took.sort()
    at = lambda share: took[min(len(took) - 1, int(len(took) * share))]
    # Its CPU time is this process's, which is accounted for already.
    return Load(len(took), time.monotonic() - begun, not_2xx, broken, at(0.5), at(0.99), at(0.999), 0.0)


class Waiting:
    """Connections that have had an answer each and keep still."""

    REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

    def __init__(self, port, count, tls=False):
        self.sockets = []
        unverified = ssl._create_unverified_context()
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", port), 5)
            if tls:
                connection = unverified.wrap_socket(connection)
            self.sockets.append(connection)
            connection.sendall(self.REQUEST)
            # The answer is small and comes in one piece or two; how it ends is not of interest here.
            if not connection.recv(65536).startswith(b"HTTP/1.1 "):
                raise Failed("a waiting connection got no answer")
        time.sleep(0.5)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for connection in self.sockets:
            connection.close()
