#!/usr/bin/env python3
"""A client of Tollgate's admin port, with nothing but Python's standard library.

It reads the port's own description (OpenAPI 3.1) and calls operations by their names:

    examples/admin_client.py http://127.0.0.1:9901                                   # what there is
    examples/admin_client.py http://127.0.0.1:9901 listLimits
    examples/admin_client.py http://127.0.0.1:9901 peekBucket limit=per-client client_ip=203.0.113.9
    examples/admin_client.py http://127.0.0.1:9901 resetBucket limit=per-client client_ip=203.0.113.9 dry_run=true

Changes say who asks for them: TOLLGATE_OPERATOR, or your name. A token, if the port wants one: TOLLGATE_TOKEN.
"""

import getpass
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request


class Refused(Exception):
    """The port has refused: `problem` says why, and what to do (RFC 9457)."""

    def __init__(self, problem):
        super().__init__(problem.get("detail", "refused"))
        self.problem = problem


class AdminPort:
    def __init__(self, url, token=None, operator=None):
        self.url, self.token, self.operator = url.rstrip("/"), token, operator
        api = self._send("GET", "/openapi.json")
        # By name: the method, the path with its parameters in braces, and what it is for.
        self.operations = {
            operation["operationId"]: (method.upper(), path, operation["summary"])
            for path, item in api["paths"].items()
            for method, operation in item.items()
        }

    def call(self, name, body=None, **values):
        """Calls an operation. Values that its path does not name go into the query."""
        method, path, _ = self.operations[name]
        for key in [key for key in values if "{%s}" % key in path]:
            path = path.replace("{%s}" % key, urllib.parse.quote(values.pop(key), safe=""))
        query = "?" + urllib.parse.urlencode(values) if values else ""
        return self._send(method, path + query, body)

    def _send(self, method, target, body=None):
        request = urllib.request.Request(self.url + target, method=method)
        if self.token:
            request.add_header("Authorization", "Bearer " + self.token)
        if method != "GET":
            request.add_header("Content-Type", "application/json")
            request.add_header("X-Tollgate-Operator", self.operator or getpass.getuser())
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data, timeout=30) as answer:
                text = answer.read().decode()
                return json.loads(text) if "json" in answer.headers["Content-Type"] else text
        except urllib.error.HTTPError as error:
            raise Refused(json.load(error)) from None


def main(url, name=None, *pairs):
    port = AdminPort(url, os.environ.get("TOLLGATE_TOKEN"), os.environ.get("TOLLGATE_OPERATOR"))
    if name is None:
        for name, (method, path, summary) in port.operations.items():
            print(f"{name:16} {method:6} {path}: {summary}")
        return
    try:
        print(json.dumps(port.call(name, **dict(pair.split("=", 1) for pair in pairs)), indent=2))
    except Refused as refused:
        sys.exit("\n  hint: ".join(filter(None, [str(refused), refused.problem.get("hint")])))


if __name__ == "__main__":
    main(*sys.argv[1:])
