#!/usr/bin/env python3
"""What a team makes of the console: `make browser`, and `make tour` for the pictures of docs/tour.md.

Two nodes share a database of policies and a store. Ada signs in, looks up a bucket and resets it, changes a strategy, sees
both nodes take it over, and takes it back; Vera, who may only look, is refused. axe-core must find nothing to complain of.

    tests/browser/team.py BINARY AXE SCREENSHOTS [TOUR]
"""

import base64
import contextlib
import http.client
import subprocess
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path

from console import Person, expect, wait
from driver import Browser, free_port

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
"""

STRATEGY = "/edit?application=shop&kind=strategy&name=per-client"
BUCKET = "/limits/shop.per-client/bucket?key=shop.per-client:alan-turing"

# With what is on them by then.
PAGES = {
    "applications": "/applications",
    "application": "/applications/shop",
    "strategy": STRATEGY,
    "new-strategy": "/edit?application=shop&kind=strategy",
    "revisions": "/revisions",
    "revision": "/revisions/2",
    "fleet": "/nodes",
    "people": "/people",
    "person": "/people/vera",
    "account": "/account",
    "audit": "/audit",
}


class Node:
    """A gateway of the fleet."""

    def __init__(self, binary, folder, name, redis):
        self.binary, self.port, self.admin = binary, free_port(), free_port()
        self.file = folder / f"{name}.yaml"
        self.file.write_text(FILE.format(name=name, port=self.port, admin=self.admin, redis=redis, folder=folder))
        with open(folder / f"{name}.log", "w") as log:
            self.process = subprocess.Popen([binary, "run", "--config", self.file], stdout=log, stderr=log)
        wait(f"the node {name} serves", self.is_up)

    def is_up(self):
        with contextlib.suppress(OSError):
            return self.ask("/readyz", port=self.admin)[0] == 200

    def ask(self, path, port=None, **headers):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=10)) as connection:
            connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return response.status, response.read().decode()

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
    """Two nodes, their store and their database, an admin and a viewer."""

    def __init__(self, binary, folder):
        self.redis = free_port()
        self.store = subprocess.Popen(
            ["redis-server", "--port", str(self.redis), "--bind", "127.0.0.1", "--save", "", "--dir", folder],
            stdout=subprocess.DEVNULL,
        )
        self.nodes = [Node(binary, folder, name, self.redis) for name in ("gate-a", "gate-b")]
        node = self.nodes[0]
        for name, *roles in (("ada", "--admin"), ("vera", "--role", "shop=viewer"), ("otto", "--role", "shop=owner")):
            node.command("account", "create", name, *roles, "--config", node.file, typed=f"{PASSWORD}\n")
        token = folder / "token"
        token.write_text(node.command("token", "create", "ada", "--label", "import", "--config", node.file))
        policies = folder / "policies.yaml"
        policies.write_text(POLICIES)
        admin = ["--admin", f"http://127.0.0.1:{node.admin}", "--token-file", token]
        node.command("policy", "import", policies, "--reason", "The limits of the shop and of search", *admin)
        self.runs(1)

    def runs(self, revision):
        wait(f"both nodes run revision {revision}", lambda: [node.revision() for node in self.nodes] == [revision] * 2)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            node.stop()
        self.store.terminate()
        self.store.wait(30)


class Member(Person):
    """Somebody of the team, whose pictures may stand in the docs as well."""

    tour = None

    def snap(self, name):
        """A small picture of what a visitor sees first."""
        if self.tour is None:
            return
        height = min(max(self.see("document.documentElement.scrollHeight"), 500), 1000)
        self.size(1100, height)
        time.sleep(0.3)  # the charts are drawn anew in the next frame
        shot = self.browser.devtools("Page.captureScreenshot", format="webp", quality=60)
        (self.tour / f"{name}.webp").write_bytes(base64.b64decode(shot["data"]))
        self.size(1280, 900)

    def look(self, name):
        self.judge(name)
        self.fits(name)
        self.picture(f"team-{name}")
        self.size(1280, 900)
        self.snap(name)

    def fill(self, selector, value):
        self.see("(() => { document.querySelector(args[0]).value = args[1] })()", selector, value)

    def sign_in(self, name):
        self.open()
        self.shows("nobody has signed in", "h1", "Sign in")
        self.judge("the page for signing in")
        if name == "ada":
            self.snap("sign-in")
        self.fill("#name", name)
        self.fill("#password", PASSWORD)
        self.browser.click(".sign-in .primary")
        self.until("signed in", "document.querySelector('.who a')?.textContent.endsWith(args[0])", name)

    def sign_out(self):
        self.browser.click(".who button")
        self.shows("signed out", "h1", "Sign in")

    def status(self, path):
        return self.browser.run("return (await fetch(args[0])).status", path)


def ada_signs_in_and_resets_a_bucket(person, fleet):
    # So that charts have something to show.
    for _ in range(3):
        fleet.nodes[0].passes("grace", 40)
        fleet.nodes[1].ask("/search")
        time.sleep(2)
    expect("the burst", fleet.nodes[0].passes("alan-turing", 25), 20)
    person.sign_in("ada")
    person.has_drawn()
    person.look("overview")
    person.open("/limits/shop.per-client")
    person.until("the denials appear", "document.querySelector('[data-part=denied]').innerText.includes('alan-turing')")
    person.has_drawn()
    person.look("limit")
    person.open(BUCKET)
    person.shows("its level", ".level strong", "0 of 20 tokens")
    person.fill("#reset-reason", "ticket 4711")
    person.browser.click("form[aria-label='Make it full'] button")
    person.shows("a dry run first", "#change-title", "A reset would make the bucket full")
    person.look("bucket")
    person.browser.click(".notice .primary")
    person.shows("it is done", "#change-title", "The bucket was made full")
    expect("requests pass", fleet.nodes[1].passes("alan-turing", 1), 1)
    person.is_content()


def ada_changes_a_strategy_and_both_nodes_take_it_over(person, fleet):
    person.open(STRATEGY)
    person.fill("[id='limit.rate']", "fast")
    person.browser.click("form.card .primary")
    person.until("the mistake is beside its field", "document.querySelector(\"[id='hint-limit.rate'] .bad\")")
    person.look("mistake")
    # The browser says of a refused form that it was one.
    person.browser.complaints()
    person.fill("[id='limit.rate']", "12/h")
    person.fill("[id='limit.burst']", "40")
    person.browser.click("form.card .primary")
    person.shows("the review", "h1", "Save the strategy per-client?")
    for line in ("limit.burst: 20", "limit.burst: 40", "limit.rate: 6/h", "limit.rate: 12/h"):
        expect(f"the difference has {line}", line in person.text(), True)
    expect("nothing has changed", [node.revision() for node in fleet.nodes], [1, 1])
    person.fill("#reason", "Larger baskets in December")
    person.look("review")
    person.browser.click("form.card .primary")
    person.shows("saved", "h1", "Revision 2")
    fleet.runs(2)
    expect("the limit on either node", [fleet.nodes[0].passes("mary", 30), fleet.nodes[1].passes("mary", 30)], [30, 10])
    person.open("/nodes")
    shown = "[...document.querySelectorAll('[data-part=nodes] tbody tr')].filter(row => row.innerText.includes('revision 2')).length === 2"
    person.until("the page shows both nodes with it", shown)
    person.open(BUCKET)
    person.shows("a bucket is as large as it may be now", ".level small, .level", person.text(".level small, .level"))
    person.is_content()


def every_page_of_a_team_is_accessible_and_fits_a_phone(person, fleet):
    for scheme in ("light", "dark"):
        person.colours(scheme)
        for name, path in PAGES.items():
            person.size(1280, 900)
            person.open(path)
            person.judge(f"{name}, {scheme}")
            person.fits(name)
            person.picture(f"{name}-{scheme}")
            if scheme == "light" and name in ("application", "fleet", "person"):
                person.snap(name)
            if scheme == "dark" and name == "application":
                person.snap("application-dark")
    person.colours("light")
    for name, path in PAGES.items():
        person.size(360, 740, mobile=True)
        person.open(path)
        person.fits(f"{name} at 360 pixels")
        person.judge(f"{name} at 360 pixels")
        person.picture(f"{name}-phone")
    person.size(1280, 900)
    person.is_content()


def a_viewer_looks_and_is_refused(person, fleet):
    person.sign_out()
    person.sign_in("vera")
    person.open(STRATEGY)
    expect("it is shown", person.see("document.querySelector(\"[id='limit.rate']\").value"), "12/h")
    expect("but no button", person.see("document.querySelectorAll('main button').length"), 0)
    person.look("viewer")
    expect("another application", person.status("/console/applications/search"), 403)
    # A form that no page has shown to her.
    fields = {
        "token": person.see("document.querySelector('[name=token]').value"), "step": "save", "kind": "strategy",
        "application": "shop", "name": "per-client", "expected": "2", "reason": "mine", "body": '{"limit": {}}',
    }
    send = "return (await fetch('/console/edit', {method: 'POST', body: new URLSearchParams(args[0])})).status"
    expect("her change", person.browser.run(send, urllib.parse.urlencode(fields)), 403)
    expect("nothing has changed", [node.revision() for node in fleet.nodes], [2, 2])
    person.browser.complaints()
    person.open("/revisions/2")
    expect("and no way to take it back", "Take it back" in person.text(), False)
    person.sign_out()
    person.is_content()


def an_owner_takes_it_back(person, fleet):
    person.sign_in("otto")
    person.open("/revisions/2")
    person.fill("#reason", "December is over")
    person.browser.click("form.card button")
    person.shows("saved", "h1", "Revision 3")
    person.look("undone")
    fleet.runs(3)
    expect("the limit on either node", [fleet.nodes[0].passes("joan", 15), fleet.nodes[1].passes("joan", 15)], [15, 5])
    person.open(STRATEGY)
    expect("it is as it was", person.see("document.querySelector(\"[id='limit.rate']\").value"), "6/h")
    person.is_content()
    person.sign_out()
    person.sign_in("ada")
    person.open("/audit")
    expect("the refusal is kept", "POST /console/edit" in person.text(), True)
    person.snap("audit")


def main():
    binary, axe, pictures = sys.argv[1], Path(sys.argv[2]).read_text(), Path(sys.argv[3])
    pictures.mkdir(parents=True, exist_ok=True)
    if sys.argv[4:]:
        Member.tour = Path(sys.argv[4])
        Member.tour.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, Fleet(binary, Path(name)) as fleet, Browser() as browser:
        person = Member(browser, fleet.nodes[0], axe, pictures)
        person.colours("light")
        person.size(1280, 900)
        for test in (
            ada_signs_in_and_resets_a_bucket,
            ada_changes_a_strategy_and_both_nodes_take_it_over,
            every_page_of_a_team_is_accessible_and_fits_a_phone,
            a_viewer_looks_and_is_refused,
            an_owner_takes_it_back,
        ):
            test(person, fleet)
            print(f"{test.__name__}: ok", flush=True)
    print(f"pictures are in {pictures}")


if __name__ == "__main__":
    main()
