#!/usr/bin/env python3
"""What a person makes of the console of one node without accounts: `make browser`.

Debian's chromium clicks through the pages, looks up a bucket and resets it, sees a denial appear, goes without a mouse
and on a phone, in light and dark. axe-core must find nothing to complain of. team.py has a fleet with accounts.

    tests/browser/console.py BINARY AXE SCREENSHOTS
"""

import contextlib
import http.client
import subprocess
import sys
import tempfile
from pathlib import Path

from driver import Browser, free_port
from person import ENTER, SPACE, TAB, Person, expect, run, showing, wait

FILE = """
workers: 1
listeners: [{{address: '127.0.0.1:{port}'}}]
admin: {{address: '127.0.0.1:{admin}'}}
limits:
  per-client: {{key: client_ip, rate: 6/h, burst: 20}}
  per-tenant: {{key: [{{header: x-tenant}}, route], rate: 5/h, burst: 5}}
  a-trial: {{key: client_ip, rate: 1/h, burst: 1, enforce: 0%}}
  busy: {{key: client_ip, algorithm: concurrency, max_in_flight: 100}}
upstreams:
  orders: {{endpoints: ['http://127.0.0.1:{upstream}', {{url: 'http://127.0.0.1:9', weight: 2}}]}}
  search-with-a-name-that-is-longer-than-most: {{endpoints: ['http://127.0.0.1:9']}}
routes:
  - {{name: hello, match: {{path: /hello}}, respond: {{status: 200, body: hello}}, limits: [busy, a-trial]}}
  - {{name: client, match: {{path: /client}}, respond: {{status: 200}}, limits: [per-client]}}
  - {{name: tenants-of-the-shop, match: {{host: [api.example.com, '127.0.0.1'], path: '/shop/{{id}}/*', methods: [GET, POST]}}, respond: {{status: 200}}, limits: [per-tenant]}}
  - {{name: search, match: {{path: /search}}, upstream: search-with-a-name-that-is-longer-than-most}}
  - {{name: orders, match: {{path: /orders/*}}, upstream: orders}}
{more}
"""

PAGES = {
    "overview": "",
    "routes": "/routes",
    "route": "/routes/client",
    "limits": "/limits",
    "limit": "/limits/per-tenant",
    "bucket": "/limits/per-client/bucket?key=per-client:127.0.0.1",
    "explain": "/explain",
    "upstreams": "/upstreams",
    "nodes": "/nodes",
}


class Gateway:
    def __init__(self, binary, folder):
        self.port, self.admin = free_port(), free_port()
        more = "".join(f"  - {{name: more-{n}, match: {{path: /more/{n}}}, respond: {{status: 204}}}}\n" for n in range(60))
        file = folder / "routes.yaml"
        file.write_text(FILE.format(port=self.port, admin=self.admin, upstream=free_port(), more=more))
        with open(folder / "log", "w") as log:
            self.process = subprocess.Popen([binary, "run", "--config", file], stdout=log, stderr=log)
        wait("the gateway serves", lambda: self.is_up())

    def is_up(self):
        with contextlib.suppress(OSError):
            return self.get(self.admin, "/readyz") == 200

    def get(self, port, path, **headers):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
            connection.request("GET", path, headers=headers)
            return connection.getresponse().status

    def ask(self, path, times=1, **headers):
        return [self.get(self.port, path, **headers) for _ in range(times)]

    def console(self, path=""):
        return f"http://127.0.0.1:{self.admin}/console{path}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)


def every_page_is_accessible_and_fits_a_phone(person):
    gateway = person.gateway
    for at in range(24):
        gateway.ask("/client")
        gateway.ask("/hello", 3)
        gateway.ask(f"/shop/{at}/x", 2, **{"x-tenant": f"tenant-{at % 3}"})
    gateway.ask("/shop/1/x", 9, **{"x-tenant": "<script>alert(1)</script>"})
    gateway.ask("/orders/7", 3)
    for name, path in PAGES.items():
        with showing(f"the page {name} in light, in dark and on a phone"):
            person.open(path)
            person.look(name)
            person.is_content()


def clicks_lead_through_all_pages(person):
    with showing("the navigation leads to each page, and a list to what stands in it"):
        person.open()
        for name in ("Routes", "Limits", "Explain", "Upstreams", "Nodes", "Overview"):
            person.browser.click("nav li:first-child a" if name == "Overview" else f"nav a[href='/console/{name.lower()}']")
            person.shows("the current page", "nav [aria-current=page]", name)
            person.shows("its heading", "h1", "Explain a request" if name == "Explain" else name)
        person.browser.click("[data-part=limits] tbody a")
        person.until("a limit is shown", "location.pathname.startsWith('/console/limits/')")
    with showing("a switch makes it dark, and leaves it to the system again"):
        # The switch is a form: its page comes back, in other colours.
        before = person.see("getComputedStyle(document.body).backgroundColor")
        person.browser.click(".theme [value=dark]")
        person.until("it is dark", "document.documentElement.dataset.theme === 'dark'")
        expect("another colour", person.see("getComputedStyle(document.body).backgroundColor") != before, True)
        person.browser.click(".theme [value=auto]")
        person.until("it is as the system has it", "document.documentElement.dataset.theme === 'auto'")
        person.is_content()


def a_denial_appears_while_one_looks(person):
    with showing("a denied client appears on the page of the limit, which nobody loads anew"):
        person.open("/limits/per-tenant")
        person.see("window.here = true")
        expect("nobody yet", "tenant-live" in person.text("[data-part=denied]"), False)
        codes = person.gateway.ask("/shop/1/x", 9, **{"x-tenant": "tenant-live"})
        expect("answers", (codes.count(200), codes.count(429)), (5, 4))
        person.until("the denials appear", "document.querySelector('[data-part=denied]').innerText.includes('per-tenant:tenant-live|tenants-of-the-shop\\t4')")
        expect("no other page was loaded", person.see("window.here"), True)
    with showing("what moves can be stopped"):
        person.browser.click("#pause")
        person.shows("it is said", "#live-state", "Updates are paused.")
        person.browser.click("#pause")
        person.is_content()


def a_bucket_is_looked_up_and_reset(person):
    with showing("a bucket is found by what it counts by"):
        person.gateway.ask("/client", 25)
        person.open("/limits/per-client")
        person.fill("#part-1", "127.0.0.1")
        person.browser.click(".fields .primary")
        person.shows("the bucket", "h1", "per-client:127.0.0.1")
        person.shows("its level", ".level strong", "0 of 20 tokens")
    with showing("a reset is previewed, which changes nothing"):
        person.fill("#reset-operator", "ada")
        person.fill("#reset-reason", "ticket 4711")
        person.browser.click("form[aria-label='Make it full'] button")
        person.shows("a dry run first", "#change-title", "A reset would make the bucket full")
        person.look("bucket-preview")
        person.shows("nothing has changed", ".level strong", "0 of 20 tokens")
        expect("requests are denied", person.gateway.ask("/client"), [429])
    with showing("then it is done, and the client's requests pass"):
        person.browser.click(".notice .primary")
        person.shows("it is done", "#change-title", "The bucket was made full")
        person.shows("and seen", ".level strong", "20 of 20 tokens")
        person.look("bucket-reset")
        expect("requests pass", person.gateway.ask("/client"), [200])
        person.is_content()


def a_request_is_explained(person):
    with showing("a request is explained, with its limits and their keys"):
        person.open("/explain")
        person.fill("#url", "http://api.example.com/shop/7/x")
        person.fill("#headers", "x-tenant: acme")
        person.browser.click("button.primary")
        person.shows("its end", "#found-title", "Answered 200, as the route says")
        expect("its limit", "per-tenant:acme|tenants-of-the-shop" in person.text(".limits"), True)
        person.look("explain-answer")
        person.is_content()


def a_keyboard_is_enough(person):
    for name, path in PAGES.items():
        with showing(f"every control of the page {name} is reached by Tab, and shows the focus"):
            person.open(path)
            person.has_drawn()
            person.reaches_everything(name)
    with showing("the first stop leads past the navigation"):
        person.open()
        person.browser.press(TAB)
        expect("the first stop", person.see("document.activeElement.innerText"), "Skip to content")
        person.browser.press(ENTER)
        expect("it leads to the content", person.see("document.activeElement.id"), "main")
    with showing("without a mouse, from a limit to a bucket with more tokens"):
        person.gateway.ask("/client", 25)
        person.open("/limits/per-client")
        person.focus("#part-1")
        person.browser.press(*"127.0.0.1", ENTER)
        person.shows("the bucket", "h1", "per-client:127.0.0.1")
        person.focus("#tokens")
        person.browser.press(*"3", TAB, *"ada", TAB, *"by hand", ENTER)
        person.shows("a dry run first", "#change-title", "3 tokens would be given back, at most until it is full")
        person.focus(".notice .primary")
        person.browser.press(SPACE)
        person.shows("it is done", "#change-title", "3 tokens were given back, at most until it was full")
        person.is_content()


def main():
    binary, axe, pictures = sys.argv[1], Path(sys.argv[2]).read_text(), Path(sys.argv[3])
    pictures.mkdir(parents=True, exist_ok=True)
    stories = (
        every_page_is_accessible_and_fits_a_phone,
        clicks_lead_through_all_pages,
        a_denial_appears_while_one_looks,
        a_bucket_is_looked_up_and_reset,
        a_request_is_explained,
        a_keyboard_is_enough,
    )
    with tempfile.TemporaryDirectory() as name, Gateway(binary, Path(name)) as gateway, Browser() as browser:
        person = Person(browser, gateway, axe, pictures)
        run(stories, [person], person)
    print(f"pictures are in {pictures}")


if __name__ == "__main__":
    main()
