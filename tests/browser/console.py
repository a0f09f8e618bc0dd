#!/usr/bin/env python3
"""What a person makes of the console: `make browser`.

Debian's chromium clicks through the pages, looks up a bucket and resets it, sees a denial appear, goes without a mouse
and on a phone, in light and dark. axe-core must find nothing to complain of.

    tests/browser/console.py BINARY AXE SCREENSHOTS
"""

import contextlib
import http.client
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from driver import Browser, BrowserError, free_port

TAB, ENTER, SPACE = "\ue004", "\ue007", " "
PATIENCE = 30

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

FOCUSABLE = "a[href], button:not([disabled]), input:not([type=hidden]), textarea, summary, [tabindex='0']"


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


class Person:
    """A browser on the console, and the folder that its pictures go to."""

    def __init__(self, browser, gateway, axe, pictures):
        self.browser, self.gateway, self.axe, self.pictures = browser, gateway, axe, pictures

    def open(self, path=""):
        self.browser.goto(self.gateway.console(path))

    def see(self, script, *arguments):
        # Not by a promise: a page that is left meanwhile keeps none.
        body = {"script": f"const args = arguments; return {script}", "args": list(arguments)}
        return self.browser.command("execute/sync", body)

    def text(self, selector="main"):
        return self.see("document.querySelector(args[0])?.innerText ?? ''", selector)

    def shows(self, what, selector, text):
        """Waits for a text, as after a click that leads to another page."""
        self.until(f"{what}: {text}", "document.querySelector(args[0])?.innerText === args[1]", selector, text)

    def until(self, what, script, *arguments):
        def ask():
            with contextlib.suppress(BrowserError):  # it is leaving the page
                return self.see(script, *arguments)

        return wait(what, ask)

    def has_drawn(self):
        """Charts are there, where there are any."""
        self.until("charts are drawn", "[...document.querySelectorAll('[data-chart]')].every(chart => chart.querySelector('canvas'))")

    def size(self, width, height, mobile=False):
        self.browser.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile
        )

    def colours(self, scheme):
        self.browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, name):
        height = self.see("document.documentElement.scrollHeight")
        width = self.see("innerWidth")
        self.size(width, min(max(height, 600), 4000), width < 500)
        time.sleep(0.3)  # the charts are drawn anew in the next frame
        self.browser.screenshot(self.pictures / f"{name}.png")

    def judge(self, name):
        """What axe-core finds, told briefly. Nothing is expected."""
        found = self.browser.run(f"{self.axe}; return (await axe.run(document)).violations")
        told = [f"{one['id']}: {one['help']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"]]
        expect(f"axe-core on {name}", told, [])

    def fits(self, name):
        told = self.see("[document.documentElement.scrollWidth, innerWidth]")
        if told[0] > told[1]:
            widest = self.see(
                "[...document.querySelectorAll('main *, header *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1"
                " && !e.closest('.scroll')).slice(0, 5).map(e => e.outerHTML.slice(0, 120))"
            )
            sys.exit(f"console: {name} scrolls sideways: {told}: {widest}")

    def is_content(self):
        expect("complaints of the browser", self.browser.complaints(), [])


def wait(what, ask):
    end = time.monotonic() + PATIENCE
    while not (answer := ask()):
        if time.monotonic() > end:
            sys.exit(f"console: waited in vain until {what}")
        time.sleep(0.05)
    return answer


def expect(what, told, expected):
    if told != expected:
        sys.exit(f"console: {what}: expected {expected}\nconsole: but it is {json.dumps(told, indent=1)}")


def every_page_is_accessible_and_fits_a_phone(person):
    gateway = person.gateway
    for at in range(24):
        gateway.ask("/client")
        gateway.ask("/hello", 3)
        gateway.ask(f"/shop/{at}/x", 2, **{"x-tenant": f"tenant-{at % 3}"})
    gateway.ask("/shop/1/x", 9, **{"x-tenant": "<script>alert(1)</script>"})
    gateway.ask("/orders/7", 3)
    for scheme in ("light", "dark"):
        person.colours(scheme)
        for name, path in PAGES.items():
            person.size(1280, 900)
            person.open(path)
            person.has_drawn()
            person.judge(f"{name}, {scheme}")
            person.fits(name)
            person.picture(f"{name}-{scheme}")
            person.is_content()
    person.colours("light")
    for name, path in PAGES.items():
        person.size(360, 740, mobile=True)
        person.open(path)
        person.has_drawn()
        person.fits(f"{name} at 360 pixels")
        person.judge(f"{name} at 360 pixels")
        person.picture(f"{name}-phone")
    person.size(1280, 900)


def clicks_lead_through_all_pages(person):
    person.open()
    for name in ("Routes", "Limits", "Explain", "Upstreams", "Nodes", "Overview"):
        person.browser.click("nav li:first-child a" if name == "Overview" else f"nav a[href='/console/{name.lower()}']")
        person.shows("the current page", "nav [aria-current=page]", name)
        person.shows("its heading", "h1", "Explain a request" if name == "Explain" else name)
    person.browser.click("[data-part=limits] tbody a")
    person.until("a limit is shown", "location.pathname.startsWith('/console/limits/')")
    # The switch is a form: its page comes back, in other colours.
    before = person.see("getComputedStyle(document.body).backgroundColor")
    person.browser.click(".theme [value=dark]")
    person.until("it is dark", "document.documentElement.dataset.theme === 'dark'")
    expect("another colour", person.see("getComputedStyle(document.body).backgroundColor") != before, True)
    person.browser.click(".theme [value=auto]")
    person.until("it is as the system has it", "document.documentElement.dataset.theme === 'auto'")
    person.is_content()


def a_denial_appears_while_one_looks(person):
    person.open("/limits/busy")
    person.open("/limits/per-tenant")
    person.see("window.here = true")
    expect("nobody yet", "tenant-live" in person.text("[data-part=denied]"), False)
    codes = person.gateway.ask("/shop/1/x", 9, **{"x-tenant": "tenant-live"})
    expect("answers", (codes.count(200), codes.count(429)), (5, 4))
    person.until("the denials appear", "document.querySelector('[data-part=denied]').innerText.includes('per-tenant:tenant-live|tenants-of-the-shop\\t4')")
    expect("no other page was loaded", person.see("window.here"), True)
    # Who does not want things to move stops them.
    person.browser.click("#pause")
    person.shows("it is said", "#live-state", "Updates are paused.")
    person.browser.click("#pause")
    person.is_content()


def a_bucket_is_looked_up_and_reset(person):
    person.gateway.ask("/client", 25)
    person.open("/limits/per-client")
    person.browser.run("document.querySelector('#part-1').value = '127.0.0.1'")
    person.browser.click(".fields .primary")
    person.shows("the bucket", "h1", "per-client:127.0.0.1")
    person.shows("its level", ".level strong", "0 of 20 tokens")
    person.browser.run("document.querySelector('#reset-operator').value = 'ada'; document.querySelector('#reset-reason').value = 'ticket 4711'")
    person.browser.click("form[aria-label='Make it full'] button")
    person.shows("a dry run first", "#change-title", "A reset would make the bucket full")
    person.judge("the preview of a reset")
    person.picture("bucket-preview")
    person.size(1280, 900)
    person.shows("nothing has changed", ".level strong", "0 of 20 tokens")
    person.browser.click(".notice .primary")
    person.shows("it is done", "#change-title", "The bucket was made full")
    person.shows("and seen", ".level strong", "20 of 20 tokens")
    person.judge("a reset")
    person.picture("bucket-reset")
    person.size(1280, 900)
    expect("requests pass", person.gateway.ask("/client"), [200])
    person.is_content()


def a_request_is_explained(person):
    person.open("/explain")
    person.browser.run("""
        document.querySelector('#url').value = 'http://api.example.com/shop/7/x';
        document.querySelector('#headers').value = 'x-tenant: acme';
    """)
    person.browser.click("button.primary")
    person.shows("its end", "#found-title", "Answered 200, as the route says")
    expect("its limit", "per-tenant:acme|tenants-of-the-shop" in person.text(".limits"), True)
    person.judge("an explanation")
    person.picture("explain-answer")
    person.size(360, 740, mobile=True)
    person.fits("an explanation at 360 pixels")
    person.picture("explain-answer-phone")
    person.size(1280, 900)
    person.is_content()


def a_keyboard_is_enough(person):
    """Every control is reached by Tab, shows that it has the focus, and works by keys."""
    for name, path in PAGES.items():
        person.open(path)
        person.has_drawn()
        person.browser.click("#pause") if person.see("!document.querySelector('.live-control').hidden") else None
        person.browser.run("document.activeElement.blur(); window.reached = new Set()")
        person.browser.run("document.querySelectorAll('details').forEach(one => one.open = true)")
        count = person.see(f"""[...document.querySelectorAll("{FOCUSABLE}")].filter(one => one.checkVisibility()).length""")
        for _ in range(count + 5):
            person.browser.press(TAB)
            hidden = person.see("""(() => {
                const one = document.activeElement;
                if (one === document.body) return '';
                window.reached.add(one);
                const style = getComputedStyle(one);
                return style.outlineStyle === 'none' || parseFloat(style.outlineWidth) < 2 ? one.outerHTML.slice(0, 160) : '';
            })()""")
            expect(f"{name}: a focus that does not show", hidden, "")
        missed = person.see(f"""[...document.querySelectorAll("{FOCUSABLE}")].filter(one => one.checkVisibility() && !window.reached.has(one)).map(one => one.outerHTML.slice(0, 160))""")
        expect(f"{name}: out of reach", missed, [])
    person.open()
    person.browser.press(TAB)
    expect("the first stop", person.see("document.activeElement.innerText"), "Skip to content")
    person.browser.press(ENTER)
    expect("it leads to the content", person.see("document.activeElement.id"), "main")
    # From the list of limits to a bucket that is full again, without a mouse.
    person.gateway.ask("/client", 25)
    person.open("/limits/per-client")
    focus(person, "#part-1")
    person.browser.press(*"127.0.0.1", ENTER)
    person.until("the bucket is shown", "document.querySelector('h1').innerText === 'per-client:127.0.0.1'")
    focus(person, "#tokens")
    person.browser.press(*"3", TAB, *"ada", TAB, *"by hand", ENTER)
    person.until("a dry run is shown", "document.querySelector('#change-title')?.innerText === '3 tokens would be given back, at most until it is full'")
    focus(person, ".notice .primary")
    person.browser.press(SPACE)
    person.until("it is done", "document.querySelector('#change-title')?.innerText === '3 tokens were given back, at most until it was full'")
    person.is_content()


def focus(person, selector):
    """Goes on with Tab until the focus is there."""
    for _ in range(200):
        if person.see("document.activeElement.matches(args[0])", selector):
            return
        person.browser.press(TAB)
    sys.exit(f"console: {selector} is not reached by Tab")


def main():
    binary, axe, pictures = sys.argv[1], Path(sys.argv[2]).read_text(), Path(sys.argv[3])
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, Gateway(binary, Path(name)) as gateway, Browser() as browser:
        person = Person(browser, gateway, axe, pictures)
        for test in (
            every_page_is_accessible_and_fits_a_phone,
            clicks_lead_through_all_pages,
            a_denial_appears_while_one_looks,
            a_bucket_is_looked_up_and_reset,
            a_request_is_explained,
            a_keyboard_is_enough,
        ):
            test(person)
            print(f"{test.__name__}: ok", flush=True)
    print(f"pictures are in {pictures}")


if __name__ == "__main__":
    main()
