#!/usr/bin/env python3
"""Counts the requests that fail while one endpoint of three is broken: `make faults`.

Tollgate, nginx and HAProxy have the same rule (five failures, then out for half a minute) and the same time limit (a
second), once without and once with a second attempt at another endpoint. Requests come at a steady rate, so that a
gateway which waits gets no fewer of them.

    bench/faults.py BINARY [--peers tollgate,nginx] [--rate 100] [--seconds 10]
"""

import argparse
import asyncio
import os
import shutil
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path

from service import Failed, Service, free_port

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ERROR = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\nno"
REQUEST = b"GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n"

# A connection that is closed so says RST.
ABORT = struct.pack("ii", 1, 0)

TOLLGATE = """
workers: 1
listeners: [{{address: '127.0.0.1:{port}'}}]
upstreams:
  u:
    endpoints: [{endpoints}]
    eject: {{after: 5, for: 30s}}
    response_timeout: 1s
routes:
  - name: all
    upstream: u
{retry}
"""

NGINX = """
worker_processes 1;
daemon off;
pid {directory}/nginx.pid;
error_log {directory}/nginx.log;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {directory};
    proxy_temp_path {directory};
    fastcgi_temp_path {directory};
    uwsgi_temp_path {directory};
    scgi_temp_path {directory};
    upstream u {{
        {servers}
        keepalive 64;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://u;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_read_timeout 1s;
            proxy_next_upstream error timeout http_500;
            proxy_next_upstream_tries {attempts};
        }}
    }}
}}
"""

HAPROXY = """
global
    nbthread 1
defaults
    mode http
    timeout connect 2s
    timeout client 30s
    timeout server 1s
    {retry}
frontend f
    bind 127.0.0.1:{port}
    default_backend u
backend u
    balance roundrobin
    {servers}
"""


class Endpoint:
    """A server that answers every request so: `ok`, `500`, `hang` or `reset`."""

    def __init__(self, kind):
        self.kind = kind
        self.requests = 0

    async def start(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def serve(self, reader, writer):
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.requests += 1
                if self.kind == "hang":
                    await reader.read()
                    return
                if self.kind == "reset":
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
                    writer.transport.abort()
                    return
                writer.write(OK if self.kind == "ok" else ERROR)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


def tollgate(options, directory, port, endpoints, attempts):
    retry = f"    retry: {{on: [connect, reset, timeout, 500], attempts: {attempts}}}" if attempts > 1 else ""
    urls = ", ".join(f"'http://127.0.0.1:{endpoint.port}'" for endpoint in endpoints)
    file = directory / "routes.yaml"
    file.write_text(TOLLGATE.format(port=port, endpoints=urls, retry=retry))
    return [options.binary, "run", "--config", file]


def nginx(_, directory, port, endpoints, attempts):
    servers = "\n".join(f"server 127.0.0.1:{endpoint.port} max_fails=5 fail_timeout=30s;" for endpoint in endpoints)
    file = directory / "nginx.conf"
    file.write_text(NGINX.format(directory=directory, port=port, servers=servers, attempts=attempts))
    return [shutil.which("nginx"), "-e", directory / "nginx.log", "-c", file]


def haproxy(_, directory, port, endpoints, attempts):
    rule = "check inter 30s rise 1 observe layer7 error-limit 5 on-error mark-down"
    servers = "\n    ".join(f"server s{n} 127.0.0.1:{endpoint.port} {rule}" for n, endpoint in enumerate(endpoints))
    conditions = "retry-on conn-failure empty-response junk-response response-timeout 500"
    retry = f"retries {attempts - 1}\n    option redispatch 1\n    {conditions}" if attempts > 1 else "retries 0"
    file = directory / "haproxy.cfg"
    file.write_text(HAPROXY.format(port=port, servers=servers, retry=retry))
    return [shutil.which("haproxy"), "-db", "-f", file]


PEERS = {"tollgate": tollgate, "nginx": nginx, "haproxy": haproxy}


async def ask(port):
    """Whether a request was answered with 200."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        answer = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        return answer.startswith(b"HTTP/1.1 200")
    except (OSError, asyncio.TimeoutError):
        return False


async def count(options, peer, fault, attempts):
    """How many of how many requests failed, how many of them came to the broken endpoint, and the last failure's second."""
    endpoints = [await Endpoint(kind).start() for kind in (fault, "ok", "ok")]
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        command = PEERS[peer](options, directory, port, endpoints, attempts)
        # Everything shares the processors: how fast it goes is not measured.
        with Service(command, os.sched_getaffinity(0), directory / "said") as service:
            await asyncio.to_thread(service.wait_for, port)
            # The look whether it listens is no request.
            endpoints[0].requests = 0
            begun, last = time.monotonic(), 0.0

            async def one(at):
                nonlocal last
                await asyncio.sleep(max(0, begun + at - time.monotonic()))
                if await ask(port):
                    return 0
                last = max(last, time.monotonic() - begun)
                return 1

            total = options.rate * options.seconds
            failed = sum(await asyncio.gather(*(one(n / options.rate) for n in range(total))))
    for endpoint in endpoints:
        endpoint.server.close()
    return failed, total, endpoints[0].requests, last


def version(peer, binary):
    """As it names itself."""
    path = binary if peer == "tollgate" else shutil.which(peer)
    if not path or not os.path.exists(path):
        raise Failed(f"{peer} is not there: {'build it' if peer == 'tollgate' else 'apt-get install ' + peer}")
    return path


async def table(options):
    peers = options.peers.split(",")
    for peer in peers:
        version(peer, options.binary)
    print(f"{options.rate} requests/s for {options.seconds} s; one endpoint of three is broken\n")
    print("| the broken endpoint | attempts | gateway | failed | share | sent to it | last failure after |")
    print("|---|---|---|---|---|---|---|")
    for fault in ("500", "hang", "reset"):
        for attempts in (1, 2):
            for peer in peers:
                failed, total, seen, last = await count(options, peer, fault, attempts)
                share = f"{100 * failed / total:.2f} %"
                after = f"{last:.1f} s" if failed else ""
                print(f"| {fault} | {attempts} | {peer} | {failed} of {total} | {share} | {seen} | {after} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--rate", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=10)
    try:
        asyncio.run(table(parser.parse_args()))
    except Failed as failure:
        sys.exit(f"faults: {failure}")


if __name__ == "__main__":
    main()
