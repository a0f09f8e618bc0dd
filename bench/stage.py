"""Where it is played: an upstream and a Redis on one CPU, a proxy on the other.

Guarantees that a peer is measured only after it was seen to do its work: bodies equal to the upstream's, uploads that
arrive whole, denials that are denials.
"""

import http.client
import os
import re
import ssl
import subprocess
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import machine
from load import scheme
from peers import Certificate, Plan, nginx
from service import Failed, Service, free_port

DISTANCE = Path(os.environ.get("CARGO_TARGET_DIR", "target")) / "quick" / "examples" / "distance"
SMALL = "x" * 199 + "\n"


class Stage:
    def __init__(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="tollgate-bench-")
        self.dir = Path(self.scratch.name)
        self.upstream, self.upstream_http2, self.redis = free_port(), free_port(), free_port()
        # The port at which peers ask it.
        self.asked_redis = self.redis
        self.services = []

    def __enter__(self):
        try:
            self.certificate = self.make_certificate()
            self.services.append(self.start_upstream())
            self.services.append(self.start_redis())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for service in self.services:
            service.stop()
        self.scratch.cleanup()

    def make_certificate(self):
        """ECDSA on P-256, as certificates for the web are issued now."""
        made = Certificate(self.dir / "cert.pem", self.dir / "key.pem", self.dir / "both.pem")
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        command += ["-keyout", made.key, "-out", made.cert, "-days", "2", "-subj", "/CN=localhost"]
        command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        subprocess.run(command, check=True, capture_output=True)
        made.both.write_text(made.cert.read_text() + made.key.read_text())
        return made

    def start_upstream(self):
        """Fixed answers. An upload is read to its end before it is answered, with how long the request was."""
        directory = self.dir / "upstream"
        directory.mkdir()
        (directory / "64k").write_text("x" * (64 << 10))
        inner = directory / "inner.sock"
        server = f"""  open_file_cache max=10;
  sendfile on;
  upstream inner {{ server unix:{inner}; keepalive 64; }}
  server {{
    listen 127.0.0.1:{self.upstream} backlog=16384;
    listen 127.0.0.1:{self.upstream_http2} http2;
    root {directory};
    default_type text/plain;
    location / {{ return 200 "{SMALL}"; }}
    location = /64k {{ }}
    location = /upload {{
      client_body_buffer_size 2m;
      proxy_pass http://inner;
      proxy_http_version 1.1;
      proxy_pass_request_body off;
      proxy_set_header Connection "";
      proxy_set_header Content-Length "";
      proxy_set_header X-Length $request_length;
    }}
  }}
  server {{ listen unix:{inner}; location / {{ return 200 "$http_x_length"; }} }}"""
        command = nginx.write(directory, server)
        return Service(command, {machine.LOAD_CPU}, self.dir / "upstream.log").wait_for(self.upstream)

    def start_redis(self):
        command = ["redis-server", "--port", self.redis, "--bind", "127.0.0.1", "--save", "", "--dir", self.dir]
        return Service(command, {machine.LOAD_CPU}, self.dir / "redis.log").wait_for(self.redis)

    @contextmanager
    def redis_away(self, milliseconds):
        """Peers ask Redis over a way that takes so long, there and back."""
        if not milliseconds:
            yield
            return
        near, self.asked_redis = self.asked_redis, free_port()
        command = [DISTANCE, self.asked_redis, near, 1000 * milliseconds]
        try:
            with Service(command, {machine.LOAD_CPU}, self.dir / "distance.log") as way:
                way.wait_for(self.asked_redis)
                yield
        finally:
            self.asked_redis = near

    def redis_calls(self):
        """Scripts that Redis has run."""
        asked = ["redis-cli", "-p", str(self.redis), "info", "commandstats"]
        stats = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        return sum(int(calls) for calls in re.findall(r"cmdstat_(?:eval|evalsha|fcall):calls=(\d+)", stats))

    def helpers_cpu(self):
        return sum(machine.cpu_seconds(service.id) for service in self.services)

    @contextmanager
    def peer(self, peer, scenario, cpus=frozenset({machine.PROXY_CPU}), routes=0):
        """A peer that serves the scenario, seen to do so; its service and its port."""
        with tempfile.TemporaryDirectory(dir=self.dir) as scratch:
            plan = Plan(
                port=free_port(),
                upstream=self.upstream_http2 if scenario.http2_upstream else self.upstream,
                redis=self.asked_redis,
                dir=Path(scratch),
                workers=len(cpus),
                limit=scenario.limit,
                shared=scenario.shared,
                keyed=scenario.clients > 0,
                routes=routes,
                http2=scenario.streams > 0,
                tls=self.certificate if scenario.tls else None,
                http2_upstream=scenario.http2_upstream,
            )
            subprocess.run(["redis-cli", "-p", str(self.redis), "flushall"], capture_output=True, check=True)
            service = Service(peer.command(plan), cpus, plan.dir / "log", peer.environment(plan))
            with service:
                service.wait_for(plan.port)
                try:
                    self.verify(plan, scenario)
                except (OSError, http.client.HTTPException, Failed) as error:
                    raise Failed(f"{error}; it said: {service.said()}") from error
                yield service, plan.port

    def verify(self, plan, scenario):
        prefix = "/service-1" if plan.routes else ""
        asking = partial(ask_http2 if plan.http2 else ask, tls=plan.tls is not None)
        self.until_routed(asking, plan.port, f"{prefix}/")
        if scenario.limit == "deny":
            self.denies(asking, plan.port)
        else:
            self.forwards(asking, plan.port, prefix)

    def until_routed(self, asking, port, path):
        """Some open their port before they know their routes."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            status, _ = asking(port, "GET", path)
            if status in (200, 429):
                return
            time.sleep(0.05)
        raise Failed(f"GET {path} is answered with {status}")

    def denies(self, asking, port):
        statuses = [asking(port, "GET", "/")[0] for _ in range(4)]
        if statuses[-1] != 429:
            raise Failed(f"denies nobody: {statuses}")

    def forwards(self, asking, port, prefix):
        for path in ("/", "/64k") if not prefix else (f"{prefix}/x",):
            if asking(port, "GET", path) != (200, ask(self.upstream, "GET", path)[1]):
                raise Failed(f"GET {path} does not give what the upstream gives")
        if not prefix:
            status, length = asking(port, "POST", "/upload", b"x" * 100_000)
            if status != 200 or int(length) < 100_000:
                raise Failed(f"POST of 100000 bytes: {status}, and {length!r} bytes arrive")


def ask(port, method, path, body=None, tls=False):
    if tls:
        unverified = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=unverified)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, body=body, headers={"x-key": "verify"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def ask_http2(port, method, path, body=None, tls=False):
    """The same over HTTP/2, by nghttp: Python speaks none."""
    # POST is what it sends a body with.
    content = ["-d", "-"] if method == "POST" else []
    command = ["nghttp", "--stat", "--timeout=5", "-H", "x-key: verify", *content, f"{scheme(tls)}://127.0.0.1:{port}{path}"]
    done = subprocess.run(command, input=body, capture_output=True, timeout=10, check=False)
    answer, _, told = done.stdout.rpartition(b"***** Statistics *****")
    rows = [line.split() for line in told.splitlines()]
    # id, responseEnd, requestStart, process, code, size, path
    found = [int(row[4]) for row in rows if len(row) == 7 and row[6] == path.encode()]
    if len(found) != 1:
        raise Failed(f"nghttp got no answer: {(done.stdout + done.stderr)[-400:].decode(errors='replace')}")
    return found[0], answer
