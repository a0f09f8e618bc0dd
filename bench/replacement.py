#!/usr/bin/env python3
"""Replaces every endpoint of an upstream by DNS, twice, under load, and counts the requests that fail: `make replacement`.

As a rolling update does: a new server starts and its address joins the name's; then one of the old goes from DNS, and is told to
stop when the answer that had it is over. dnsmasq tells the addresses, nginx serves. GETs and POSTs come over kept connections
and over new ones. Any failed request fails the run.

    bench/replacement.py BINARY [--endpoints 3] [--rounds 2]
"""

import argparse
import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from restarts import EVERYWHERE, Load, fresh, replace
from service import Failed, Service, free_port

NAME = "orders.test"

# Seconds that an answer of DNS holds.
TTL = 1

# What a server waits for between its leaving DNS and its end: the TTL, and the two seconds that docs/discovery.md says.
GRACE = TTL + 2.5

GATEWAY = """
workers: 2
listeners: [{{address: '127.0.0.1:{port}'}}]
admin: {{address: '127.0.0.1:{admin}'}}
upstreams: {{up: {{discover: {{dns: {name}, port: {served}, resolvers: ['127.0.0.1:{dns}']}}}}}}
routes: [{{name: all, match: {{path: /*}}, upstream: up}}]
"""

SERVER = """
worker_processes 1;
daemon off;
pid {directory}/pid;
error_log {directory}/log;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {directory};
    proxy_temp_path {directory};
    fastcgi_temp_path {directory};
    uwsgi_temp_path {directory};
    scgi_temp_path {directory};
    keepalive_requests 1000000;
    server {{ listen {address}:{port}; location / {{ return 200 "{address}\\n"; }} }}
}}
"""

POST = 'wrk.method = "POST"\nwrk.body = "an order"\n'


class Endpoints:
    """The servers behind the name, each on an address of its own."""

    def __init__(self, directory, port, dns):
        self.directory, self.port, self.dns = directory, port, dns
        self.hosts = directory / "hosts"
        self.next = 1
        self.serving = {}
        self.resolver = None

    def start(self):
        address = f"127.0.1.{self.next}"
        self.next += 1
        home = self.directory / address
        home.mkdir()
        file = home / "nginx.conf"
        file.write_text(SERVER.format(directory=home, address=address, port=self.port))
        server = Service([shutil.which("nginx"), "-e", home / "log", "-c", file], EVERYWHERE, home / "said")
        self.serving[address] = server
        wait_until(lambda: answers(address, self.port), f"{address} does not serve")
        return address

    def stop(self, address):
        """Requests end, and idle connections are closed."""
        server = self.serving.pop(address)
        server.process.send_signal(signal.SIGQUIT)
        server.process.wait(30)

    def publish(self, addresses):
        replace(self.hosts, "".join(f"{address} {NAME}\n" for address in addresses))
        if self.resolver:
            self.resolver.process.send_signal(signal.SIGHUP)
            return
        command = [shutil.which("dnsmasq") or "/usr/sbin/dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts"]
        command += [f"--addn-hosts={self.hosts}", f"--local-ttl={TTL}", f"--port={self.dns}", "--user=", "--group="]
        command += ["--listen-address=127.0.0.1", "--bind-interfaces", "--pid-file", "--conf-file=/dev/null"]
        command += ["--local=/test/"]
        self.resolver = Service(command, EVERYWHERE, self.directory / "dnsmasq").wait_for(self.dns)

    def end(self):
        for service in [*self.serving.values(), *filter(None, [self.resolver])]:
            service.stop()


def answers(address, port):
    try:
        connection = http.client.HTTPConnection(address, port, timeout=1)
        connection.request("GET", "/")
        return connection.getresponse().status == 200
    except OSError:
        return False


def wait_until(holds, otherwise, seconds=15):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise Failed(otherwise)
        time.sleep(0.05)


def known(admin):
    """The addresses that the gateway sends requests to, by its metrics."""
    connection = http.client.HTTPConnection("127.0.0.1", admin, timeout=10)
    connection.request("GET", "/upstreams")
    return set(re.findall(r"127\.0\.1\.\d+", connection.getresponse().read().decode()))


def wrk(url, script=None):
    """Kept connections, until it is stopped."""

    def one(stopped):
        command = ["wrk", "-t1", "-c16", "-d600s", *(["-s", script] if script else []), url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            stopped.wait()
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=20)[0]
        for line in said.splitlines():
            if "Socket errors" in line or "Non-2xx" in line:
                raise Failed(line.strip())
        return int(re.search(r"(\d+) requests in", said)[1])

    return one


def run(options):
    with tempfile.TemporaryDirectory(prefix="tollgate-replacement-") as name:
        directory = Path(name)
        os.chmod(directory, 0o755)
        port, admin = free_port(), free_port()
        endpoints = Endpoints(directory, free_port(), free_port())
        gateway, loads = None, []
        try:
            addresses = [endpoints.start() for _ in range(options.endpoints)]
            endpoints.publish(addresses)
            file = directory / "routes.yaml"
            file.write_text(GATEWAY.format(port=port, admin=admin, name=NAME, served=endpoints.port, dns=endpoints.dns))
            gateway = Service([options.binary, "run", "--config", file], EVERYWHERE, directory / "said").wait_for(port)
            wait_until(lambda: known(admin) == set(addresses), "the gateway does not know the endpoints")
            script = directory / "post.lua"
            script.write_text(POST)
            url = f"http://127.0.0.1:{port}/"
            loads = [
                Load("GET, kept connections", wrk(url)),
                Load("POST, kept connections", wrk(url, script)),
                Load("new connections", fresh(port, tls=False)),
            ]
            replaced = 0
            for _ in range(options.rounds):
                for old in list(addresses):
                    addresses.append(endpoints.start())
                    endpoints.publish(addresses)
                    wait_until(lambda: known(admin) == set(addresses), "the gateway does not find a new endpoint")
                    addresses.remove(old)
                    endpoints.publish(addresses)
                    time.sleep(GRACE)
                    endpoints.stop(old)
                    replaced += 1
            time.sleep(1)
            if known(admin) != set(addresses):
                raise Failed(f"the gateway knows {known(admin)} where {set(addresses)} serve")
        finally:
            for load in loads:
                load.stop()
            if gateway:
                gateway.stop()
            endpoints.end()
    print(f"{replaced} endpoints replaced, {options.endpoints} at a time, {options.rounds} times over")
    for load in loads:
        failed = f"{len(load.failures)} failed: {load.failures[:3]}" if load.failures else "none failed"
        print(f"{load.name:25} {load.answered:9} requests, {failed}", flush=True)
    return all(load.answered and not load.failures for load in loads)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--endpoints", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    try:
        passed = run(parser.parse_args())
    except Failed as failure:
        sys.exit(f"replacement: {failure}")
    sys.exit(0 if passed else "replacement: requests failed")


if __name__ == "__main__":
    main()
