#!/usr/bin/env python3
"""Counts the instructions that each optional step of a route adds to a forwarded request: `make guard-layers`.

Each is measured as a route in a file of its own, with that one key, against the plain route and the same request. Prints a
table.

    bench/layers.py BINARY           every step
    bench/layers.py BINARY cors      those with this in their names
    bench/layers.py BINARY --docs    every step, and into docs/performance.md
"""

import argparse
import base64
import datetime
import hashlib
import hmac
import json
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
upstreams:
  up: {{endpoints: [{endpoints}]{upstream}}}
{others}
routes: [{{name: plain, upstream: {to}{route}}}]
"""

OTHER = '  other: {endpoints: ["http://UPSTREAM"]}'

KEY = "0123456789abcdef0123456789abcdef"

# The password "open sesame", as bcrypt has it at its least cost.
USER = "ada:$2y$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy"


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token():
    """A token of the issuer "guard" that is good for a day."""
    expires = int(datetime.datetime.now(datetime.UTC).timestamp()) + 86_400
    parts = [{"alg": "HS256", "kid": "a"}, {"iss": "guard", "sub": "ada", "exp": expires}]
    message = ".".join(base64url(json.dumps(part).encode()) for part in parts)
    return f"{message}.{base64url(hmac.digest(KEY.encode(), message.encode(), 'sha256'))}"


def jwt(text):
    return f"authenticators: {{users: {{jwt: {{issuer: guard, jwks: SECRETS, algorithms: [HS256]{text}}}}}}}"


def forward(text):
    sso = f"forward: {{upstream: other, request_headers: [authorization]{text}}}"
    return {"route": "authenticate: [sso]", "top": f"authenticators: {{sso: {{{sso}}}}}", "others": OTHER}


HALVES = "[{to: up, weight: 50%}, {to: other, weight: 50%}]"


class Step(NamedTuple):
    """A step: what the file says of it, and what the request has besides."""

    name: str
    # Keys of the route, of its upstream and of the file.
    route: str = ""
    upstream: str = ""
    top: str = ""
    fields: str = ""
    endpoints: int = 1
    # The route's upstream, and the upstreams besides `up`.
    to: str = "up"
    others: str = ""
    # Of the request.
    body: str = ""


def limit(name, text):
    return Step(name, route="limits: [one]", top=f"limits: {{one: {{key: client_ip, {text}}}}}")


STEPS = [
    Step("`allow` and `deny`, by networks", route="allow: [127.0.0.0/8, 10.0.0.0/8], deny: [10.9.0.0/16]"),
    Step(
        "`authenticate`, by API key",
        route="authenticate: [keys]",
        top="authenticators: {keys: {api_key: {header: x-api-key, keys: CREDENTIALS}}}",
        fields=f"X-Api-Key: {KEY}\r\n",
    ),
    Step(
        "`authenticate`, by a password that comes again",
        route="authenticate: [staff]",
        top="authenticators: {staff: {basic: {users: USERS}}}",
        fields=f"Authorization: Basic {base64.b64encode(b'ada:open sesame').decode()}\r\n",
    ),
    Step(
        "`authenticate`, by a token that comes again",
        route="authenticate: [users]",
        top=jwt(""),
        fields=f"Authorization: Bearer {token()}\r\n",
    ),
    Step("`authenticate`, by a service", **forward("")),
    Step("`authenticate`, by a service whose answer is kept", **forward(", cache: {max_age: 1h}")),
    Step("`maintenance` that is off", route="maintenance: {when_file: /nonexistent/down}"),
    Step("`cors`, no page asks", route='cors: {origins: ["https://app.example.com"]}'),
    Step(
        "`cors`, a page asks",
        route='cors: {origins: ["https://app.example.com"]}',
        fields="Origin: https://app.example.com\r\n",
    ),
    Step("`request_headers`, one set", route='request_headers: {set: {x-route: "{route}"}}'),
    Step("`response_headers`, one set", route="response_headers: {set: {x-frame-options: DENY}}"),
    Step("`compress`, an answer too short for it", route="compress: true", fields="Accept-Encoding: gzip\r\n"),
    Step("`compress`, 200 bytes by gzip", route="compress: {min_size: 1}", fields="Accept-Encoding: gzip\r\n"),
    Step("`error_pages`, no error", route='error_pages: [{status: [502], type: text/html, body: "<p>{status}"}]'),
    Step("`timeout`", route="timeout: 30s"),
    Step("`timeouts: {response: …}`", route="timeouts: {response: 30s}"),
    Step("`timeouts: {request: …}`", route="timeouts: {request: 30s}"),
    Step("`max_body`", route="max_body: 1MiB"),
    Step("`max_requests`", top="max_requests: 1000"),
    Step("`replace_prefix`", route="replace_prefix: {from: /, to: /b}"),
    limit("a limit, `exact`, in this process", "rate: 1000000/s, burst: 1000000"),
    limit("a limit, `leased`, in this process", "rate: 1000000/s, burst: 1000000, consistency: leased"),
    Step(
        "a limit by a member of the body",
        route="limits: [one]",
        top="limits: {one: {key: {body: username}, rate: 1000000/s, burst: 1000000}}",
        fields="Content-Type: application/x-www-form-urlencoded\r\n",
        body="username=ada&password=secret",
    ),
    limit("a limit, `hidden`", "rate: 1000000/s, burst: 1000000, hidden: true"),
    limit("a limit on requests at the same time", "algorithm: concurrency, max_in_flight: 100"),
    Step("`retry`, the first attempt succeeds", route="retry: {on: [connect, reset, 503]}"),
    Step("`retry`, with bodies kept", route="retry: {on: [connect, reset, 503], keep_body: 64KiB}", body="x" * 100),
    Step("a split by chance", to=HALVES, others=OTHER),
    Step("a split by a key", to=HALVES, others=OTHER, route="split_by: {header: user-agent}"),
    Step("`balance: round_robin` over three", endpoints=3),
    Step("`balance: least_requests` over three", upstream="balance: least_requests", endpoints=3),
    Step("`balance: {hash: …}` over three", upstream="balance: {hash: {header: user-agent}}", endpoints=3),
    Step("`eject`", upstream="eject: {after: 5}"),
    Step("`bounds: {connections: …}`", upstream="bounds: {connections: 100}"),
    Step("`access_log: json`", top="access_log: json"),
]


def file_of(step):
    """The file of a gateway whose one route has this step."""
    more = lambda keys: f", {keys}" if keys else ""
    endpoints = ", ".join(['"http://UPSTREAM"'] * step.endpoints)
    return FILE.format(
        top=step.top,
        endpoints=endpoints,
        upstream=more(step.upstream),
        others=step.others,
        to=step.to,
        route=more(step.route),
    )


class Counter:
    """Counts requests of one binary."""

    def __init__(self, binary, scratch):
        self.binary, self.port = binary, upstream()
        secret = {"kty": "oct", "kid": "a", "k": base64url(KEY.encode())}
        files = {
            "CREDENTIALS": f"- {{id: ada, key_sha256: {hashlib.sha256(KEY.encode()).hexdigest()}}}\n",
            "USERS": f"{USER}\n",
            "SECRETS": json.dumps({"keys": [secret]}),
        }
        self.files = {name: Path(scratch) / name.lower() for name in files}
        for name, text in files.items():
            self.files[name].write_text(text)

    @cache
    def count(self, file, fields, body):
        """Instructions of one request with these `fields` and this `body`."""
        for name, path in self.files.items():
            file = file.replace(name, str(path))

        def run(requests):
            def drive(connection):
                for _ in range(requests):
                    ask(connection, "/", 200, fields, body)

            return threads(self.binary, file, self.port, drive)

        return each(run(WARM), run(WARM + COUNTED))

    def added(self, step):
        plain = Step("", fields=step.fields, body=step.body)
        return self.count(file_of(step), step.fields, step.body) - self.count(file_of(plain), step.fields, step.body)


def table(binary, steps):
    """The lines of the table."""
    with tempfile.TemporaryDirectory(prefix="tollgate-layers-") as scratch, ThreadPoolExecutor(2) as pool:
        counter = Counter(binary, scratch)
        plain = counter.count(file_of(Step("")), "", "")
        added = list(pool.map(counter.added, steps))
    yield f"A plain forwarded request takes {plain} instructions of the worker."
    yield ""
    yield "| step | instructions more | of a plain request |"
    yield "|---|--:|--:|"
    for step, more in zip(steps, added):
        yield f"| {step.name} | {more} | {more / plain:.1%} |"


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
    parser.add_argument("name", nargs="?", default="", help="only the steps with this in their names")
    parser.add_argument("--docs", action="store_true", help="write the table into docs/performance.md")
    options = parser.parse_args()
    steps = [step for step in STEPS if options.name in step.name]
    try:
        lines = list(table(options.binary, steps))
        print("\n".join(lines))
        if options.docs:
            write(lines, options.binary)
    except Failed as error:
        sys.exit(f"layers: {error}")


main()
