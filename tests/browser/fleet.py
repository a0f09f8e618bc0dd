"""A fleet that a team runs: two nodes with a store, a database of policies, and accounts."""

import contextlib
import http.client
import subprocess
import sys

from driver import free_port
from person import wait

PASSWORD = "correct horse battery"

FILE = """
node_name: {name}
workers: 1
listeners: [{{address: '127.0.0.1:{port}'}}]
admin: {{address: '127.0.0.1:{admin}'}}
store: {{redis: 'redis://127.0.0.1:{redis}'}}
policies: {{database: 'sqlite://{folder}/policies.db', copy: '{folder}/{name}.json'}}
limits:
  per-address: {{key: client_ip, rate: 1000/s}}
routes:
  - {{name: orders, match: {{path: /orders/*}}, respond: {{status: 200, body: ok}}, limits: [per-address]}}
  - {{name: legacy, match: {{path: '/a/path/that/is/as/long/as/those/which/people/make/when/nobody/stops/them/*'}}, respond: {{status: 200, body: ok}}}}
  - {{name: search, match: {{path: /search}}, respond: {{status: 200, body: ok}}}}
"""

POLICIES = """
applications:
  shop:
    description: The shop's API
    routes: [orders]
    resources:
      all: {route: orders}
      checkout: {route: orders, match: {path: /orders/checkout, methods: [POST]}}
    strategies:
      per-client: {limit: {key: {header: x-client}, rate: 6/h, burst: 20}, resources: [all]}
      checkouts: {limit: {key: client_ip, rate: 10/m}, resources: [checkout]}
    plans:
      gold: {limits: {per-client: {rate: 600/h, burst: 100}}}
    clients: {grace: gold, alan: gold}
  search:
    description: Search and suggestions
    routes: [search]
    resources: {all: {route: search}}
    strategies:
      everybody: {limit: {key: client_ip, rate: 50/s}, resources: [all]}
  the-shop-that-we-bought-in-2019:
    description: It stays until the last of its clients has moved on, which was to be done by the end of last year. It stays until the last of its clients has moved on, which was to be done by the end of last year. It stays until the last of its clients has moved on, which was to be done by the end of last year. 
    routes: [legacy]
    resources: {every-client-by-header-and-route: {route: legacy}}
    strategies:
      every-client-by-header-and-route: {limit: {key: [{header: x-client-of-the-old-interface}, route, client_ip], rate: 5000/h}, resources: [every-client-by-header-and-route]}
    plans: {the-plan-of-those-who-have-paid-for-more-than-they-ever-use: {limits: {every-client-by-header-and-route: {rate: 9000/h}}}}
    clients: {a-client-with-a-name-of-more-than-a-hundred-characters-since-somebody-took-the-token-for-a-name-once-upon-a-time: the-plan-of-those-who-have-paid-for-more-than-they-ever-use}
"""


class Node:
    """A gateway of the fleet."""

    def __init__(self, binary, folder, name, redis):
        self.binary, self.file, self.parts = binary, folder / f"{name}.yaml", {"name": name, "redis": redis, "folder": folder}
        self.start()

    def start(self):
        self.port, self.admin = free_port(), free_port()
        self.file.write_text(FILE.format(port=self.port, admin=self.admin, **self.parts))
        with open(self.file.with_suffix(".log"), "w") as log:
            self.process = subprocess.Popen([self.binary, "run", "--config", self.file], stdout=log, stderr=log)

    def is_up(self):
        if self.process.poll() is not None:
            self.start()  # a port that was free may be somebody else's by now
        with contextlib.suppress(OSError):
            return self.ask("/readyz", port=self.admin)[0] == 200

    def ask(self, path, port=None, **headers):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=10)) as connection:
            connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return response.status, response.read().decode()

    def on_admin(self, path, **headers):
        """The status of what a program, or a browser with a stolen cookie, asks the admin port for."""
        return self.ask(path, port=self.admin, **headers)[0]

    def passes(self, client, times):
        """How many requests of so many pass."""
        return sum(self.ask("/orders/1", x_client=client)[0] == 200 for _ in range(times))

    def revision(self):
        lines = self.ask("/metrics", port=self.admin)[1].splitlines()
        return next(int(float(line.split()[1])) for line in lines if line.startswith("tollgate_policy_revision "))

    def command(self, *args, typed=""):
        done = subprocess.run([self.binary, *args], input=typed, capture_output=True, text=True, timeout=60)
        if done.returncode:
            sys.exit(f"console: {args}: {done.stderr}")
        return done.stdout.strip()

    def console(self, path=""):
        return f"http://127.0.0.1:{self.admin}/console{path}"

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


class Fleet:
    """Two nodes, their store and their database; Ada, an admin, Otto, who owns the shop, and Vera, who may look at it."""

    def __init__(self, binary, folder):
        self.binary, self.folder, self.redis, self.nodes = binary, folder, free_port(), []

    def start(self):
        for name in ("gate-a", "gate-b"):
            self.nodes.append(Node(self.binary, self.folder, name, self.redis))
        for node in self.nodes:
            wait(f"the node {node.file.stem} serves", node.is_up)
        node = self.nodes[0]
        for name, *roles in (("ada", "--admin"), ("vera", "--role", "shop=viewer"), ("otto", "--role", "shop=owner")):
            node.command("account", "create", name, *roles, "--config", node.file, typed=f"{PASSWORD}\n")
        token = self.folder / "token"
        token.write_text(node.command("token", "create", "ada", "--label", "import", "--config", node.file))
        policies = self.folder / "policies.yaml"
        policies.write_text(POLICIES)
        admin = ["--admin", f"http://127.0.0.1:{node.admin}", "--token-file", token]
        node.command("policy", "import", policies, "--reason", "The limits of the shop and of search", *admin)
        self.runs(1)

    def runs(self, revision):
        wait(f"both nodes run revision {revision}", lambda: [node.revision() for node in self.nodes] == [revision] * 2)

    def __enter__(self):
        self.store = subprocess.Popen(
            ["redis-server", "--port", str(self.redis), "--bind", "127.0.0.1", "--save", "", "--dir", self.folder],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            node.stop()
        self.store.terminate()
        self.store.wait(30)
