"""Somebody in front of the console: what they see, how it looks in each mode, and whether keys are enough."""

import contextlib
import json
import sys
import time

from driver import BrowserError

TAB, ENTER, SPACE, SHIFT = "\ue004", "\ue007", " ", "\ue008"
PATIENCE = 30

# How each page is looked at: colours, width and height.
MODES = {"light": ("light", 1280, 900), "dark": ("dark", 1280, 900), "phone": ("light", 360, 740)}

FOCUSABLE = "a[href], button:not([disabled]), input:not([type=hidden]), select, textarea, summary, [tabindex='0']"

# Of its rules, the one on the size of targets must be asked for: fingers need 24 pixels (WCAG 2.2, 2.5.8).
AXE = "return (await axe.run(document, {rules: {'target-size': {enabled: true}}})).violations"


class Person:
    """A browser on the console, and the folder that its pictures go to."""

    # Pages that axe-core has judged, each in each mode, for the last line of a run.
    judged = []

    def __init__(self, browser, gateway, axe, pictures):
        self.browser, self.gateway, self.axe, self.pictures = browser, gateway, axe, pictures
        self.mode("light")

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

        try:
            return wait(what, ask)
        except SystemExit as problem:
            shown = self.see("location.pathname + ': ' + document.querySelector('main')?.innerText.slice(0, 600)")
            sys.exit(f"{problem}\nconsole: the page is {shown}")

    def has_drawn(self):
        """Charts are there, where there are any."""
        self.until("charts are drawn", "[...document.querySelectorAll('[data-chart]')].every(chart => chart.querySelector('canvas'))")

    def size(self, width, height):
        mobile = width < 500
        self.browser.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile
        )

    def colours(self, scheme):
        self.browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def mode(self, name):
        scheme, width, height = MODES[name]
        self.colours(scheme)
        self.size(width, height)

    def picture(self, name):
        width, height = self.see("[innerWidth, document.documentElement.scrollHeight]")
        self.size(width, min(max(height, 600), 4000))
        time.sleep(0.3)  # the charts are drawn anew in the next frame
        self.browser.screenshot(self.pictures / f"{name}.png")

    def look(self, name):
        """Judges the page as it stands in each mode, and takes its picture."""
        self.has_drawn()
        for mode in MODES:
            self.mode(mode)
            self.fits(f"{name}, {mode}")
            self.judge(f"{name}, {mode}")
            self.picture(f"{name}-{mode}")
        self.mode("light")

    def judge(self, name):
        """Expects axe-core to find nothing."""
        found = self.browser.run(f"{self.axe}; {AXE}")
        told = [f"{one['id']}: {one['help']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"]]
        expect(f"axe-core on {name}", told, [])
        Person.judged.append(name)

    def fits(self, name):
        """Nothing is wider than the window or its card but tables, which scroll by themselves, and no text is cut off."""
        # Not `innerWidth`: a phone shows a page that is too wide as a whole, only smaller.
        told = self.see("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        if told[0] > told[1]:
            widest = self.see(
                "[...document.querySelectorAll('main *, header *')].filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1"
                " && !e.closest('.scroll')).slice(0, 5).map(e => e.outerHTML.slice(0, 120))"
            )
            sys.exit(f"console: {name} scrolls sideways: {told}: {widest}")
        cut = self.see(
            "[...document.querySelectorAll('main *, header *')].filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth"
            " && getComputedStyle(e).overflowX === 'hidden' && !e.matches('.hidden, .chart, .chart *'))"
            ".map(e => e.outerHTML.slice(0, 120))"
        )
        expect(f"text that is cut off on {name}", cut, [])
        out = self.see(
            "[...document.querySelectorAll('.card *')].filter(e => !e.matches('.hidden, .chart *, .scroll *') && e.getClientRects().length"
            " && e.getBoundingClientRect().right > e.closest('.card').getBoundingClientRect().right + 1)"
            ".map(e => e.outerHTML.slice(0, 120))"
        )
        expect(f"what reaches out of its card on {name}", out, [])

    def is_content(self):
        expect("complaints of the browser", self.browser.complaints(), [])

    def submits(self, selector):
        """Clicks what leads to another page, maybe of the same look, and waits for that."""
        self.see("window.isLeft = true")
        self.browser.click(selector)
        self.until("another page", "!window.isLeft && document.readyState === 'complete'")

    def fill(self, selector, value):
        found = self.see("(() => { const one = document.querySelector(args[0]); if (!one) return false; one.value = args[1]; return true })()", selector, value)
        expect(f"{selector} is there", found, True)

    def reaches_everything(self, name):
        """Every control of the page is reached by Tab, and shows that it has the focus."""
        self.browser.click("#pause") if self.see("!document.querySelector('.live-control').hidden") else None
        self.browser.run("document.activeElement.blur(); window.reached = new Set()")
        self.browser.run("document.querySelectorAll('details').forEach(one => one.open = true)")
        count = self.see(f"""[...document.querySelectorAll("{FOCUSABLE}")].filter(one => one.checkVisibility()).length""")
        for _ in range(count + 5):
            self.browser.press(TAB)
            hidden = self.see("""(() => {
                const one = document.activeElement;
                if (one === document.body) return '';
                window.reached.add(one);
                const style = getComputedStyle(one);
                return style.outlineStyle === 'none' || parseFloat(style.outlineWidth) < 2 ? one.outerHTML.slice(0, 160) : '';
            })()""")
            expect(f"{name}: a focus that does not show", hidden, "")
        missed = self.see(f"""[...document.querySelectorAll("{FOCUSABLE}")].filter(one => one.checkVisibility() && !window.reached.has(one)).map(one => one.outerHTML.slice(0, 160))""")
        expect(f"{name}: out of reach", missed, [])

    def focus(self, selector):
        """Goes on with Tab until the focus is there."""
        for _ in range(200):
            if self.see("document.activeElement.matches(args[0])", selector):
                return
            self.browser.press(TAB)
        sys.exit(f"console: {selector} is not reached by Tab")


@contextlib.contextmanager
def showing(what):
    """Prints the line of something that the run shows, once it is shown."""
    try:
        yield
    except (SystemExit, BrowserError):
        print(f"NOT SO: {what}", flush=True)
        raise
    print(f"shown: {what}", flush=True)


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


def run(stories, everybody, *arguments):
    """Each story in turn. A picture of what each person saw is kept where one fails."""
    for story in stories:
        try:
            story(*arguments)
        except BaseException:
            for number, person in enumerate(everybody, 1):
                with contextlib.suppress(BrowserError, OSError):
                    person.browser.screenshot(person.pictures / f"failed-{number}.png")
                    print(f"what was seen then: {person.pictures}/failed-{number}.png")
            raise
    pages = {name.rsplit(", ", 1)[0] for name in Person.judged}
    if pages:
        print(f"axe-core: {len(pages)} pages, {len(Person.judged)} times in {', '.join(MODES)}: no violations")
