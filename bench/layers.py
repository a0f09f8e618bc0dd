#!/usr/bin/env python3
"""Counts the instructions that each optional layer of a route adds to a forwarded request: `make guard-layers`.

Each is measured as a route in a file of its own, with that one key, against the plain route and the same request. Prints a
table.

    bench/layers.py BINARY           every layer
    bench/layers.py BINARY cors      those with this in their names
    bench/layers.py BINARY --docs    every layer, and into docs/performance.md
"""

import argparse
import datetime
import hashlib
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

from callgrind import COUNTED, WARM, ask, each, threads, upstream
from service import Failed

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
BEGIN, END = "<!-- begin: written by make guard-layers -->", "<!-- end: written by make guard-layers -->"

FILE = """\
workers: 1
listeners: [{{address: "LISTENER"}}]
admin: "off"
{top}
upstreams: {{up: {{endpoints: [{endpoints}]{upstream}}}}}
routes: [{{name: plain, upstream: up{route}}}]
"""

KEY = "0123456789abcdef0123456789abcdef"


class Layer(NamedTuple):
    """A layer: what the file says of it, and what the request has besides."""

    name: str
    # Keys of the route, of its upstream and of the file.
    route: str = ""
    upstream: str = ""
    top: str = ""
    fields: str = ""
    endpoints: int = 1


def limit(name, text):
    return Layer(name, route="limits: [one]", top=f"limits: {{one: {{key: client_ip, {text}}}}}")


LAYERS = [
    Layer("`allow` and `deny`, by networks", route="allow: [127.0.0.0/8, 10.0.0.0/8], deny: [10.9.0.0/16]"),
    Layer(
        "`authenticate`, by API key",
        route="authenticate: [keys]",
        top="authenticators: {keys: {api_key: {header: x-api-key, keys: CREDENTIALS}}}",
        fields=f"X-Api-Key: {KEY}\r\n",
    ),
    Layer("`cors`, no page asks", route='cors: {origins: ["https://app.example.com"]}'),
    Layer(
        "`cors`, a page asks",
        route='cors: {origins: ["https://app.example.com"]}',
        fields="Origin: https://app.example.com\r\n",
    ),
    Layer("`request_headers`, one set", route='request_headers: {set: {x-route: "{route}"}}'),
    Layer("`response_headers`, one set", route="response_headers: {set: {x-frame-options: DENY}}"),
    Layer("`compress`, an answer too short for it", route="compress: true", fields="Accept-Encoding: gzip\r\n"),
    Layer("`compress`, 200 bytes by gzip", route="compress: {min_size: 1}", fields="Accept-Encoding: gzip\r\n"),
    Layer("`error_pages`, no error", route='error_pages: [{status: [502], type: text/html, body: "<p>{status}"}]'),
    Layer("`timeout`", route="timeout: 30s"),
    Layer("`timeouts: {response: …}`", route="timeouts: {response: 30s}"),
    Layer("`timeouts: {request: …}`", route="timeouts: {request: 30s}"),
    Layer("`max_body`", route="max_body: 1MiB"),
    Layer("`max_requests`", top="max_requests: 1000"),
    Layer("`replace_prefix`", route="replace_prefix: {from: /, to: /b}"),
    limit("a limit, `exact`, in this process", "rate: 1000000/s, burst: 1000000"),
    limit("a limit, `leased`, in this process", "rate: 1000000/s, burst: 1000000, consistency: leased"),
    limit("a limit on requests at the same time", "algorithm: concurrency, max_in_flight: 100"),
    Layer("`balance: round_robin` over three", endpoints=3),
    Layer("`balance: least_requests` over three", upstream="balance: least_requests", endpoints=3),
    Layer("`balance: {hash: …}` over three", upstream="balance: {hash: {header: user-agent}}", endpoints=3),
    Layer("`eject`", upstream="eject: {after: 5}"),
    Layer("`bounds: {connections: …}`", upstream="bounds: {connections: 100}"),
    Layer("`access_log: json`", top="access_log: json"),
]


def file_of(layer):
    """The file of a gateway whose one route has this layer."""
    more = lambda keys: f", {keys}" if keys else ""
    endpoints = ", ".join(['"http://UPSTREAM"'] * layer.endpoints)
    return FILE.format(top=layer.top, endpoints=endpoints, upstream=more(layer.upstream), route=more(layer.route))


class Counter:
    """Counts requests of one binary."""

    def __init__(self, binary, scratch):
        self.binary, self.port = binary, upstream()
        self.credentials = Path(scratch) / "keys.yaml"
        self.credentials.write_text(f"- {{id: ada, key_sha256: {hashlib.sha256(KEY.encode()).hexdigest()}}}\n")

    @cache
    def count(self, file, fields):
        """Instructions of one request with these `fields`."""
        file = file.replace("CREDENTIALS", str(self.credentials))

        def run(requests):
            def drive(connection):
                for _ in range(requests):
                    ask(connection, "/", 200, fields)

            return threads(self.binary, file, self.port, drive)

        return each(run(WARM), run(WARM + COUNTED))

    def added(self, layer):
        plain = Layer("", fields=layer.fields)
        return self.count(file_of(layer), layer.fields) - self.count(file_of(plain), layer.fields)


def table(binary, layers):
    """The lines of the table."""
    with tempfile.TemporaryDirectory(prefix="tollgate-layers-") as scratch, ThreadPoolExecutor(2) as pool:
        counter = Counter(binary, scratch)
        plain = counter.count(file_of(Layer("")), "")
        added = list(pool.map(counter.added, layers))
    yield f"A plain forwarded request takes {plain} instructions of the worker."
    yield ""
    yield "| layer | instructions more | of a plain request |"
    yield "|---|--:|--:|"
    for layer, more in zip(layers, added):
        yield f"| {layer.name} | {more} | {more / plain:.1%} |"


def write(lines, binary):
    """Puts the table into the page, between its marks."""
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    build = binary.resolve().parent.name
    text = "\n".join([f"Counted {datetime.date.today()}, {version}, `{build}` build.", "", *lines])
    page, marks = PAGE.read_text(), re.compile(f"{BEGIN}.*?{END}", re.S)
    if not marks.search(page):
        raise Failed(f"{PAGE} has no place for the table: {BEGIN}")
    PAGE.write_text(marks.sub(lambda _: f"{BEGIN}\n\n{text}\n\n{END}", page))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("binary", type=Path)
    parser.add_argument("name", nargs="?", default="", help="only the layers with this in their names")
    parser.add_argument("--docs", action="store_true", help="write the table into docs/performance.md")
    options = parser.parse_args()
    layers = [layer for layer in LAYERS if options.name in layer.name]
    try:
        lines = list(table(options.binary, layers))
        print("\n".join(lines))
        if options.docs:
            write(lines, options.binary)
    except Failed as error:
        sys.exit(f"layers: {error}")


main()
