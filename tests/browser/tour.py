#!/usr/bin/env python3
"""Follows docs/tour.md as a newcomer does, and makes its pictures: `make tour`.

What it types stands on the page, and each picture of the page is made here: a tour that no longer works fails.

    tests/browser/tour.py BINARY PICTURES
"""

import base64
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from driver import Browser, free_port
from fleet import PASSWORD
from member import Member
from person import expect, run, showing, wait

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/tour.md").read_text()

# Of one picture. The page is to load at once.
MOST_BYTES = 100_000
MOST_PICTURES = 12


class FirstRun:
    """`make run`, on ports of its own."""

    def __init__(self, binary, file, ports):
        (self.port, self.admin), self.log = ports, open(file.parent / "log", "a")
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        self.process = subprocess.Popen(
            [ROOT / "scripts/first-run", binary, file, *urls], stdout=self.log, stderr=self.log, start_new_session=True
        )

    def is_up(self):
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/readyz", timeout=5).status == 200

    def console(self, path=""):
        return f"http://127.0.0.1:{self.admin}/console{path}"

    def __enter__(self):
        wait("the gateway serves", self.is_up)
        return self

    def __exit__(self, *_):
        os.kill(self.process.pid, signal.SIGTERM)
        self.process.wait(30)
        self.log.close()


class Newcomer(Member):
    """Somebody who does what the page says."""

    def reads(self, text):
        """What is typed or clicked stands on the page."""
        if text not in PAGE:
            sys.exit(f"tour: docs/tour.md says nothing of {text}")
        return text

    def types(self, selector, text):
        for line in text.splitlines():
            self.reads(line)
        self.fill(selector, text)

    def clicks(self, words):
        """A link or a button, by its words."""
        self.reads(words)
        find = "[...document.querySelectorAll('main a, main button, nav a')].find(one => one.innerText === args[0])"
        self.until(f"there is {words}", f"!!{find}", words)
        self.see(f"{find}.click()", words)

    def chooses(self, selector, value):
        """Takes what a list offers."""
        self.reads(value)
        offered = "[...document.querySelector(args[0]).options].some(one => one.value === args[1])"
        self.until(f"{value} is offered", offered, selector, value)
        self.see("document.querySelector(args[0]).value = args[1]", selector, value)

    def ticks(self, name, value):
        self.reads(value)
        box = "document.querySelector(`input[type=checkbox][name='${args[0]}'][value='${args[1]}']`)"
        self.until(f"{value} is offered", f"!!{box}", name, value)
        self.see(f"{box}.click()", name, value)
        expect(f"{value} is ticked", self.see(f"{box}.checked", name, value), True)

    def arrives(self, heading):
        self.until(f"the page is {heading}", "document.querySelector('h1')?.innerText.split('\\n')[0].startsWith(args[0])", heading)

    def saves(self, why):
        self.clicks("Review the change")
        self.until("the review", "document.querySelector('h1').innerText.startsWith('Save ')")
        self.types("#reason", why)

    def takes(self, name, mode="light"):
        """A small picture of what a visitor sees first, with the mouse out of the way."""
        self.colours("dark" if mode == "dark" else "light")
        width = 390 if mode == "phone" else 1100
        self.browser.devtools("Emulation.setScrollbarsHidden", hidden=True)
        self.size(width, 800)
        height = self.see("document.documentElement.scrollHeight")
        self.size(width, min(max(height, 420), 860))
        time.sleep(0.3)  # the charts are drawn anew in the next frame
        for quality in (75, 60, 45):
            shot = self.browser.devtools("Page.captureScreenshot", format="webp", quality=quality)
            picture = base64.b64decode(shot["data"])
            if len(picture) < MOST_BYTES:
                break
        expect(f"{name} is small", len(picture) < MOST_BYTES, True)
        (self.pictures / f"{name}.webp").write_bytes(picture)
        self.mode("light")


def something_to_look_at(person):
    with showing("make run has traffic to look at, and a limit that denies somebody"):
        person.open()
        person.has_drawn()
        person.until("a limit denies", "document.querySelector('[data-part=limits]').innerText.includes('per-client')")
        # So that the charts have a line.
        time.sleep(40)
        person.takes("overview")
        person.see("[...document.querySelectorAll('[data-part=limits] a')].find(one => one.innerText === 'per-client').click()")
        person.arrives("per-client")
        person.until("somebody is denied", "document.querySelector('[data-part=denied]').innerText.includes('127.0.0.4')")
        person.has_drawn()
        person.takes("limit")
        person.reads("127.0.0.4")


def an_application(person):
    with showing("the first account signs in, and makes an application with a resource and a strategy"):
        person.sign_in()
        person.clicks("Applications")
        person.arrives("Applications")
        person.clicks("New application")
        person.arrives("A new application")
        person.types("#name", "shop")
        person.ticks("routes", "everything-else")
        person.saves("First steps")
        person.clicks("Save")
        person.arrives("Revision 1")

        person.clicks("shop")
        person.clicks("Add a resource")
        person.arrives("A new resource")
        person.types("#name", "search")
        person.chooses("#route", "everything-else")
        person.types("#match", "path: /search/*")
        person.saves("The search of the shop")
        person.clicks("Save")
        person.arrives("Revision 2")

        person.clicks("shop")
        person.clicks("Add a strategy")
        person.arrives("A new strategy")
        person.types("#name", "searches")
        person.types("[id='limit.key']", "client_ip")
        person.types("[id='limit.rate']", "fast")
        person.types("[id='limit.burst']", "24")
        person.types("#resources", "[search]")
        person.clicks("Review the change")
        person.until("the mistake is beside its field", "document.querySelector(\"[id='hint-limit.rate'] .bad\")")
        person.takes("mistake")
        person.types("[id='limit.rate']", "12/s")
        person.saves("12 searches a second are enough")
        person.takes("review")
        person.clicks("Save")
        person.arrives("Revision 3")
        person.clicks("shop")
        person.takes("application")


def a_try_out(person):
    with showing("a candidate in shadow says whom a tighter limit would deny"):
        person.open("/applications/shop")
        person.clicks("searches")
        person.arrives("searches")
        person.types("#candidate", "limit: {key: client_ip, rate: 6/s, burst: 6}\non: shadow")
        person.saves("Would 6 do?")
        person.clicks("Save")
        person.arrives("Revision 4")
        person.clicks("Limits")
        person.arrives("Limits")
        person.clicks("shop.searches.candidate")
        person.arrives("shop.searches.candidate")
        person.until("whom it would deny", "document.querySelector('[data-part=denied]').innerText.includes('127.0.0.3')")
        person.has_drawn()
        time.sleep(15)
        person.takes("candidate")
    with showing("promoted, it is the limit, and denies them"):
        person.open("/edit?application=shop&kind=strategy&name=searches")
        person.clicks("Make the candidate the limit")
        person.until("the review", "document.querySelector('h1').innerText.startsWith('Save ')")
        person.types("#reason", "It will do")
        person.clicks("Save")
        person.arrives("Revision 5")
        person.open("/limits/shop.searches")
        person.until("it denies", "document.querySelector('[data-part=denied]').innerText.includes('127.0.0.3')")


def an_undo(person):
    with showing("the history has each change with its reason, and takes it back"):
        person.clicks("History")
        person.arrives("History")
        person.takes("history")
        person.see("document.querySelector(\"tbody a[href$='/5']\").click()")
        person.arrives("Revision 5")
        person.types("#reason", "Search pages ask twice")
        person.takes("undo")
        person.clicks("Undo revision 5")
        person.arrives("Revision 6")
        person.open("/edit?application=shop&kind=strategy&name=searches")
        expect("the limit is what it was", person.see("document.querySelector(\"[id='limit.rate']\").value"), "12/s")


def other_people(person):
    with showing("a second account with a role, and what it has done, in the dark and on a phone"):
        person.clicks("People")
        person.arrives("People")
        person.types("#name", "vera")
        person.fill("#password", PASSWORD)
        person.fill("#proof", PASSWORD)
        person.clicks("Make the account")
        person.arrives("vera")
        person.chooses("#application", "shop")
        person.chooses("#role", "viewer")
        person.fill("#proof-role", PASSWORD)
        person.clicks("Give this role")
        person.until("she has it", "document.querySelector('main').innerText.includes('shop: viewer')")
        person.takes("person")
        person.clicks("Audit log")
        person.arrives("Audit log")
        person.takes("audit", "dark")
        person.open("/applications/shop")
        person.takes("phone", "phone")


def main():
    binary, pictures = sys.argv[1], Path(sys.argv[2])
    pictures.mkdir(parents=True, exist_ok=True)
    before = {one.name for one in pictures.glob("*.webp")}
    started = time.time()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        file, ports = folder / "routes.yaml", (free_port(), free_port())
        committed = (ROOT / "routes.yaml").read_text()
        file.write_text(committed.replace("0.0.0.0:8080", f"127.0.0.1:{ports[0]}").replace("127.0.0.1:9901", f"127.0.0.1:{ports[1]}"))
        browser = stack.enter_context(Browser())
        with FirstRun(binary, file, ports) as gateway:
            person = Newcomer(browser, gateway, "", pictures, name="ada")
            run([something_to_look_at], [person], person)
        section = person.reads('policies: {database: "sqlite:///tmp/tour/policies.db", copy: /tmp/tour/policies.json}')
        with open(file, "a") as text:
            text.write(section.replace("/tmp/tour", str(folder)) + "\n")
        person.reads("account create ada --admin --config")
        subprocess.run(
            [binary, "account", "create", "ada", "--admin", "--config", file], input=f"{PASSWORD}\n", text=True, check=True, stdout=subprocess.DEVNULL
        )
        with FirstRun(binary, file, ports):
            run([an_application, a_try_out, an_undo, other_people], [person], person)
    shown = set(re.findall(r"\(tour/([a-z-]+\.webp)\)", PAGE))
    made = {one.name for one in pictures.glob("*.webp") if one.stat().st_mtime >= started - 1}
    expect("pictures that are made and not shown, or shown and not made", sorted(shown ^ made), [])
    expect(f"at most {MOST_PICTURES} pictures", len(made) <= MOST_PICTURES, True)
    expect("pictures of another tour", sorted(before - made), [])
    print(f"pictures are in {pictures}")


if __name__ == "__main__":
    main()
