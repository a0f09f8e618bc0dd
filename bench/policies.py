#!/usr/bin/env python3
"""How fast a change of policies reaches a fleet, and what an outage of their database changes: `make policies`.

Ten nodes take 10 000 strategies, each on a part of a route, from one PostgreSQL. A change is at work on a node when an answer of
its data path names the new quota. Then the database is killed under load, and comes back. A change that takes longer than two
seconds, or a request that fails, fails the run.

    bench/policies.py BINARY EDITOR [--nodes 10] [--strategies 10000] [--changes 5] [--outage 10]
"""

import argparse
import contextlib
import glob
import http.client
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from service import Failed, Service, free_port

APPLICATIONS = 100

# Seconds.
BOUND = 2.0
PATIENCE = 120.0
SETTLE = 4.0

GATEWAY = """
workers: 1
listeners: [{{address: '127.0.0.1:{port}'}}]
admin: {{address: '127.0.0.1:{admin}'}}
store: {{redis: 'redis://127.0.0.1:{redis}', timeout: 500ms}}
policies: {{database: 'postgres://tollgate@127.0.0.1:{database}/postgres', copy: '{directory}/copy.json'}}
routes:
"""

ROUTE = "  - {{name: a{n}, match: {{path: '/a{n}/*'}}, respond: {{status: 200, body: ok}}}}\n"

EVERYWHERE = set(range(os.cpu_count()))


class Node:
    def __init__(self, binary, directory, redis, database):
        directory.mkdir()
        self.port, self.admin = free_port(), free_port()
        file = directory / "routes.yaml"
        head = GATEWAY.format(port=self.port, admin=self.admin, redis=redis, database=database, directory=directory)
        file.write_text(head + "".join(ROUTE.format(n=n) for n in range(APPLICATIONS)))
        self.began = time.monotonic()
        self.service = Service([binary, "run", "--config", file], EVERYWHERE, directory / "log")

    def quota(self, connection):
        """The burst that an answer names."""
        connection.request("GET", "/a0/r0")
        answer = connection.getresponse()
        answer.read()
        found = re.search(r'"a0\.s0";q=(\d+)', answer.getheader("RateLimit-Policy", ""))
        return int(found[1]) if found else None

    def await_quota(self, quota):
        """When its answers name the quota."""
        end = time.monotonic() + PATIENCE
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        while time.monotonic() < end:
            try:
                if self.quota(connection) == quota:
                    connection.close()
                    return time.monotonic()
            except (OSError, http.client.HTTPException):
                connection.close()
            # Whoever measures uses the same cores.
            time.sleep(0.05)
        raise Failed(f"the change did not come: {self.service.said()}")

    def metric(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        return float(re.search(rf"^{re.escape(name)} (\S+)", text, re.M)[1])

    def memory(self):
        status = Path(f"/proc/{self.service.id}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


class Postgres:
    """A server of its own, which can be killed and started again."""

    def __init__(self, directory):
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
        if not found:
            raise Failed("PostgreSQL's server is needed: install the package postgresql")
        self.programs, self.directory, self.port = Path(found[-1]).parent, directory, free_port()
        directory.mkdir()
        self.by = []
        if os.getuid() == 0:
            self.by = ["runuser", "-u", "postgres", "--"]
            shutil.chown(directory, "postgres")
        init = [self.programs / "initdb", "-D", directory / "data", "-U", "tollgate", "-A", "trust", "-N"]
        subprocess.run([*self.by, *init], check=True, stdout=subprocess.DEVNULL, cwd="/")
        self.start()

    def start(self):
        options = [f"unix_socket_directories={self.directory}", "listen_addresses=127.0.0.1", "max_connections=200"]
        words = [word for option in options for word in ("-c", option)]
        command = [*self.by, self.programs / "postgres", "-D", self.directory / "data", "-p", self.port, *words]
        log = self.directory.parent / "postgres.log"
        self.service = Service(command, EVERYWHERE, log).wait_for(self.port)
        end = time.monotonic() + 15
        while "ready to accept connections" not in Path(log).read_text() and time.monotonic() < end:
            time.sleep(0.05)

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.service.id, 9)
        self.service.process.wait()


class Editor:
    """Commits revisions."""

    def __init__(self, binary, database):
        url = f"postgres://tollgate@127.0.0.1:{database}/postgres"
        self.process = subprocess.Popen([binary, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def commit(self, edits):
        self.process.stdin.write(json.dumps(edits) + "\n")
        self.process.stdin.flush()
        number = self.process.stdout.readline()
        if not number:
            raise Failed("the editor could not commit")
        return int(number)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def edit(kind, application, name, body):
    return {"id": {"kind": kind, "application": application, "name": name}, "expected": "any", "body": body}


def strategy(application, number, burst):
    limit = {"key": "client_ip", "rate": "1000000/s", "burst": burst}
    return edit("strategy", f"a{application}", f"s{number}", {"limit": limit, "resources": [f"r{number}"]})


def all_edits(strategies):
    for at in range(APPLICATIONS):
        name = f"a{at}"
        yield edit("application", "", name, {"routes": [name]})
    for at in range(strategies):
        application, number = at % APPLICATIONS, at // APPLICATIONS
        path = f"/a{application}/r{number}"
        body = {"route": f"a{application}", "match": {"path": path}}
        yield edit("resource", f"a{application}", f"r{number}", body)
        yield strategy(application, number, 1000)


def announce(redis):
    words = ["redis-cli", "-p", str(redis), "XADD", "tollgate:!changes", "*", "bucket", "!policies", "full_at", "0"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def reach(nodes, quota):
    """Seconds until each node has the change."""
    began = time.monotonic()
    took, failures = [], []

    def wait(node):
        try:
            took.append(node.await_quota(quota) - began)
        except Failed as failure:
            failures.append(failure)

    threads = [threading.Thread(target=wait, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return took


class Load:
    """Requests to every node, one after the other, until it is stopped."""

    def __init__(self, nodes):
        self.sent, self.failed, self.slowest, self.going = 0, 0, 0.0, True
        self.threads = [threading.Thread(target=self.run, args=(node,)) for node in nodes]
        for thread in self.threads:
            thread.start()

    def run(self, node):
        connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=10)
        while self.going:
            began = time.monotonic()
            try:
                connection.request("GET", "/a1/r1")
                answer = connection.getresponse()
                answer.read()
                self.failed += answer.status != 200
            except (OSError, http.client.HTTPException):
                self.failed += 1
                connection.close()
            self.sent += 1
            self.slowest = max(self.slowest, time.monotonic() - began)
            time.sleep(0.01)
        connection.close()

    def stop(self):
        self.going = False
        for thread in self.threads:
            thread.join()


def measure(options, directory, stack):
    redis = free_port()
    words = ["redis-server", "--port", redis, "--save", "", "--appendonly", "no"]
    stack.enter_context(Service(words, EVERYWHERE, directory / "redis.log").wait_for(redis))
    postgres = Postgres(directory / "postgres")
    stack.callback(postgres.kill)
    editor = Editor(options.editor, postgres.port)
    stack.callback(editor.close)
    began = time.monotonic()
    editor.commit(list(all_edits(options.strategies)))
    print(f"{options.strategies} strategies on as many parts of {APPLICATIONS} routes: committed in {time.monotonic() - began:.1f} s")
    nodes = []
    for number in range(options.nodes):
        node = Node(options.binary, directory / f"node{number}", redis, postgres.port)
        stack.callback(node.service.stop)
        nodes.append(node)
        ready = node.await_quota(1000) - node.began
        if number == 0:
            print(f"a node starts with them in {ready:.2f} s, and its copy has {copy_size(directory / 'node0')} MiB")
    memory = [node.memory() for node in nodes]
    print(f"memory of a node: {statistics.mean(memory):.0f} MiB, at most {max(memory):.0f} MiB")
    fine = True
    quota = 1000
    for told in (True, False):
        slowest = []
        for _ in range(options.changes):
            quota += 1
            editor.commit([strategy(0, 0, quota)])
            if told:
                announce(redis)
            slowest.append(max(reach(nodes, quota)))
            # The nodes keep their copies of it before the next one comes.
            time.sleep(SETTLE)
        way = "told over Redis" if told else "found by looking"
        print(f"a change is at work on all {options.nodes} nodes after " + ", ".join(f"{one:.2f}" for one in slowest) + f" s, {way}")
        fine &= max(slowest) <= BOUND
    memory = [node.memory() for node in nodes]
    print(f"memory of a node after {2 * options.changes} changes: {statistics.mean(memory):.0f} MiB, at most {max(memory):.0f} MiB")

    load = Load(nodes)
    counters = ["tollgate_policy_revision", 'tollgate_policy_updates_total{outcome="applied"}', 'tollgate_policy_updates_total{outcome="refused"}']
    before = [[node.metric(name) for name in counters] for node in nodes]
    editor.close()
    postgres.kill()
    time.sleep(options.outage)
    during = [[node.metric(name) for name in counters] for node in nodes]
    ages = [node.metric("tollgate_policy_age_seconds") for node in nodes]
    postgres.start()
    editor = Editor(options.editor, postgres.port)
    stack.callback(editor.close)
    quota += 1
    editor.commit([strategy(0, 0, quota)])
    back = max(reach(nodes, quota))
    load.stop()
    print(
        f"database killed for {options.outage:g} s: {load.sent} requests, {load.failed} failed, the slowest took "
        f"{1000 * load.slowest:.0f} ms; the ages reached {min(ages):.0f} to {max(ages):.0f} s"
        + (", nothing else changed" if before == during else f", and the counters changed: {before} {during}")
    )
    print(f"a change after its return is at work on all nodes after {back:.2f} s")
    return fine and before == during and load.failed == 0


def copy_size(directory):
    copy = directory / "copy.json"
    end = time.monotonic() + 30
    while not copy.exists() and time.monotonic() < end:
        time.sleep(0.1)
    return f"{copy.stat().st_size / (1 << 20):.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("editor")
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--strategies", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=5, help="of each way to hear of them")
    parser.add_argument("--outage", type=float, default=10, help="seconds that the database is away")
    options = parser.parse_args()
    options.binary, options.editor = os.path.abspath(options.binary), os.path.abspath(options.editor)
    directory = Path(tempfile.mkdtemp(prefix="tollgate-policies-"))
    directory.chmod(0o755)
    try:
        with contextlib.ExitStack() as stack:
            fine = measure(options, directory, stack)
    except Failed as failure:
        sys.exit(f"bench/policies.py: {failure}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
