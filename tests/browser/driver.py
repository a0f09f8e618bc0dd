"""Debian's chromium, driven by chromedriver over W3C WebDriver: what a page sees, told as JSON."""

import base64
import contextlib
import http.client
import json
import socket
import subprocess
import tempfile
import time

ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]


class BrowserError(Exception):
    """The browser, or its driver, could not do what it was told."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def key_hash(certificate):
    """The SHA-256 of its public key in base64, as browsers pin it."""
    public = f"openssl x509 -in '{certificate}' -noout -pubkey | openssl pkey -pubin -outform der"
    done = subprocess.run(f"{public} | openssl dgst -sha256 -binary", shell=True, check=True, capture_output=True)
    return base64.b64encode(done.stdout).decode()


class Browser:
    """One window with a profile of its own.

    `trusted` are files of certificates that it takes as if they were signed: from a server with another, it would keep
    nothing and heed no early hints.
    """

    def __init__(self, *trusted):
        self.trusted = [key_hash(file) for file in trusted]

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="tollgate-browser-", ignore_cleanup_errors=True)
        self.port = free_port()
        self.driver = subprocess.Popen(
            ["chromedriver", f"--port={self.port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            self.session = self.open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError, BrowserError):
            self.call("DELETE", f"/session/{self.session}")
        self.close()

    def open(self):
        trust = f"--ignore-certificate-errors-spki-list={','.join(self.trusted)}"
        options = {"binary": "/usr/bin/chromium", "args": [*ARGUMENTS, f"--user-data-dir={self.profile.name}", trust]}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        end = time.monotonic() + 30
        while True:
            try:
                return self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def close(self):
        self.driver.terminate()
        self.driver.wait(10)
        self.profile.cleanup()

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            text = None if method in ("GET", "DELETE") else json.dumps(body or {})
            connection.request(method, path, text, {"content-type": "application/json"})
            response = connection.getresponse()
            value = json.loads(response.read())["value"]
        if response.status != 200:
            raise BrowserError(value.get("message", value))
        return value

    def goto(self, url):
        self.command("url", {"url": url})

    def command(self, name, body):
        return self.call("POST", f"/session/{self.session}/{name}", body)

    def devtools(self, name, **parameters):
        """A command of the Chrome DevTools Protocol, for what WebDriver has none for."""
        return self.command("goog/cdp/execute", {"cmd": name, "params": parameters})

    def cookies(self):
        """All cookies of the page, also those that no script sees."""
        return self.call("GET", f"/session/{self.session}/cookie")

    def complaints(self):
        """What the browser has said of pages since the last time, such as that their policy forbids a script."""
        return [entry["message"] for entry in self.command("se/log", {"type": "browser"})]

    def click(self, selector):
        """Clicks what the selector finds first, and waits for the page that this leads to, if any."""
        element = self.command("element", {"using": "css selector", "value": selector})
        self.command(f"element/{next(iter(element.values()))}/click", {})

    def press(self, *keys):
        """Presses keys one after the other, wherever the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.command("actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.call("GET", f"/session/{self.session}/screenshot")))

    def run(self, script, *arguments):
        """What the body of an async function returns, run in the page."""
        wrapped = f"""
            const done = arguments[arguments.length - 1];
            (async (...args) => {{ {script} }})(...[...arguments].slice(0, -1))
                .then(value => done({{value}}), error => done({{error: String(error)}}));
        """
        told = self.call("POST", f"/session/{self.session}/execute/async", {"script": wrapped, "args": list(arguments)})
        if "error" in told:
            raise BrowserError(told["error"])
        return told.get("value")
