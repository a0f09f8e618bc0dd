#!/usr/bin/env python3
"""Restarts and reloads a gateway under load and counts the requests that fail: `make restarts`.

Three ways: a hand-over between processes, sockets that the next process inherits as from systemd, and a file and
certificates that change each second. Load comes in the clear and over TLS, on kept connections and on new ones, over
HTTP/1.1 and HTTP/2. Any failed request fails the run.

    bench/restarts.py BINARY [--ways handover,inherit,reload] [--times 10] [--seconds 60]
"""

import argparse
import contextlib
import http.client
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

from service import Failed, Service, free_port
from stage import Stage

FILE = """
workers: 2
drain_timeout: 3s
{handover}
listeners:
  - address: '127.0.0.1:{clear}'
  - {{address: '127.0.0.1:{tls}', tls: {{certificates: [{{cert: '{cert}', key: '{key}'}}]}}}}
admin: {{address: '127.0.0.1:{admin}'}}
upstreams: {{up: {{endpoints: ['http://127.0.0.1:{upstream}']}}}}
routes: [{{name: all-{number}, match: {{path: /*}}, upstream: up}}]
"""

# Streams of one connection of curl: it opens another when it is told GOAWAY.
STREAMS = 40
EVERYWHERE = os.sched_getaffinity(0)


class Gateway:
    """The processes that follow each other on the same ports."""

    def __init__(self, binary, stage, way):
        self.binary, self.stage, self.way = binary, stage, way
        self.clear, self.tls, self.admin = free_port(), free_port(), free_port()
        self.file = stage.dir / "routes.yaml"
        self.number = 0
        self.sockets = []
        if way == "inherit":
            self.sockets = [listening(port) for port in (self.clear, self.tls)]
        self.write()
        self.service = self.start()

    def write(self):
        self.number += 1
        handover = f"handover: {self.stage.dir}/handover.sock" if self.way == "handover" else ""
        certificate = self.stage.certificate
        text = FILE.format(
            handover=handover, clear=self.clear, tls=self.tls, admin=self.admin, cert=certificate.cert,
            key=certificate.key, upstream=self.stage.upstream, number=self.number,
        )
        replace(self.file, text)

    def start(self):
        command = [self.binary, "run", "--config", self.file]
        if self.way == "handover":
            command.append("--take-over")
        if self.sockets:
            # A socket unit numbers its sockets from 3, and names the process that may take them.
            moves = " ".join(f"{3 + n}<&{kept.fileno()}" for n, kept in enumerate(self.sockets))
            script = f'exec {moves}; LISTEN_PID=$$ LISTEN_FDS={len(self.sockets)} exec "$@"'
            command = ["bash", "-c", script, "gateway", *command]
        for kept in self.sockets:
            kept.set_inheritable(True)
        service = Service(command, EVERYWHERE, self.stage.dir / f"said-{self.number}", descriptors=self.sockets)
        return service.wait_for(self.admin)

    def restart(self):
        old = self.service
        self.write()
        if self.way == "inherit":
            old.process.send_signal(signal.SIGTERM)
            ended(old)
            self.service = self.start()
        elif self.way == "handover":
            self.service = self.start()
            ended(old)
        else:
            self.service.process.send_signal(signal.SIGHUP)

    def reloads(self):
        """Files that the process has taken over, by its own metrics."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=10)
        connection.request("GET", "/metrics")
        said = connection.getresponse().read().decode()
        found = re.search(r'^tollgate_config_reloads_total\{outcome="applied"\} (\d+)', said, re.M)
        if not found:
            raise Failed("no file was taken over")
        return int(found[1])

    def stop(self):
        self.service.stop()
        for kept in self.sockets:
            kept.close()


def listening(port):
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    made.listen(4096)
    return made


def ended(service):
    """Draining takes the time limit at most."""
    try:
        service.process.wait(15)
    except subprocess.TimeoutExpired:
        raise Failed(f"the old process does not end: {service.said()}") from None


def replace(path, text):
    """A file that is there at any time, whole."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


class Load:
    """What runs until it is stopped, with the requests that were answered and how others failed."""

    def __init__(self, name, one):
        self.name, self.one = name, one
        self.answered, self.failures = 0, []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.stopped.is_set():
            try:
                self.answered += self.one(self.stopped)
            except (OSError, http.client.HTTPException, Failed) as error:
                self.failures.append(f"{type(error).__name__}: {error}")

    def stop(self):
        self.stopped.set()
        self.thread.join(30)


def wrk(url):
    """Kept connections, which wrk opens again as it is told to close them. It is ended by a signal and tells then."""

    def one(stopped):
        with subprocess.Popen(["wrk", "-t1", "-c8", "-d600s", url], stdout=subprocess.PIPE, text=True) as process:
            stopped.wait()
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=20)[0]
        for line in said.splitlines():
            if "Socket errors" in line or "Non-2xx" in line:
                raise Failed(line.strip())
        return int(re.search(r"(\d+) requests in", said)[1])

    return one


def curl(url):
    """Many streams of one HTTP/2 connection."""
    command = ["curl", "-sk", "--http2", "--parallel", "--parallel-max", "8", "-o", "/dev/null", "-w", "%{http_code}\n"]

    def one(_):
        done = subprocess.run([*command, f"{url}?[1-{STREAMS}]"], capture_output=True, text=True, check=False)
        statuses = done.stdout.split()
        if done.returncode or statuses != ["200"] * STREAMS:
            raise Failed(f"curl: exit {done.returncode}: {done.stderr.strip()} {set(statuses)}")
        return STREAMS

    return one


def fresh(port, tls):
    """A connection for each request."""
    context = ssl._create_unverified_context()

    def one(_):
        time.sleep(0.02)
        if tls:
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", "/", headers={"connection": "close"})
            response = connection.getresponse()
            response.read()
            if response.status != 200:
                raise Failed(f"status {response.status}")
        return 1

    return one


def run(options, way):
    with Stage() as stage:
        gateway = Gateway(options.binary, stage, way)
        clear, tls = f"http://127.0.0.1:{gateway.clear}/", f"https://127.0.0.1:{gateway.tls}/"
        loads = [
            Load("HTTP/1.1, kept", wrk(clear)),
            Load("HTTP/1.1 over TLS, kept", wrk(tls)),
            Load("HTTP/2 over TLS", curl(tls)),
            Load("new connections", fresh(gateway.clear, tls=False)),
            Load("new connections over TLS", fresh(gateway.tls, tls=True)),
        ]
        try:
            times = options.seconds if way == "reload" else options.times
            for _ in range(times):
                time.sleep(1)
                if way == "reload":
                    renewed = stage.make_certificate()
                    assert renewed.cert == stage.certificate.cert
                gateway.restart()
            time.sleep(1)
            if way == "reload":
                print(f"{way:9} {gateway.reloads()} of {times} files taken over", flush=True)
        finally:
            for load in loads:
                load.stop()
            gateway.stop()
    for load in loads:
        failed = f"{len(load.failures)} failed: {load.failures[:3]}" if load.failures else "none failed"
        print(f"{way:9} {times:3} times   {load.name:25} {load.answered:9} requests, {failed}", flush=True)
    return all(load.answered and not load.failures for load in loads)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--ways", default="handover,inherit,reload")
    parser.add_argument("--times", type=int, default=10, help="restarts of each way")
    parser.add_argument("--seconds", type=int, default=60, help="how long files change, once a second")
    options = parser.parse_args()
    try:
        passed = [run(options, way) for way in options.ways.split(",")]
    except Failed as failure:
        sys.exit(f"restarts: {failure}")
    sys.exit(0 if all(passed) else "restarts: requests failed")


if __name__ == "__main__":
    main()
