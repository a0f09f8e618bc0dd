"""Tollgate itself, as built for release."""

import json
import os
from pathlib import Path

import machine
from peers import BASICS, HTTP2, LOCAL, SHARED, TLS, Peer
from scenarios import FURTHER
from service import free_port

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", "target"))


class Tollgate(Peer):
    name = "tollgate"
    scenarios = BASICS | HTTP2 | TLS | LOCAL | SHARED | frozenset(FURTHER) | {"h2-upstream"}
    install = "cargo build --release --locked"
    ours = True
    consistency = "exact"
    binary = TARGET / "release" / "tollgate"

    def missing(self):
        return None if self.binary.exists() else str(self.binary)

    def command(self, plan):
        file = plan.dir / "routes.yaml"
        # JSON is YAML.
        file.write_text(json.dumps(self.configuration(plan), indent=1))
        return [self.binary, "run", "--config", file]

    def configuration(self, plan):
        limits = ["per-client"] if plan.limit else []
        route = {"upstream": "up", "limits": limits} if limits else {"upstream": "up"}
        routes = [{"name": "all", **route}]
        if plan.routes:
            number = range(1, plan.routes + 1)
            routes = [{"name": f"s{n}", "match": {"path": f"/service-{n}/*"}, **route} for n in number]
        listener = {"address": f"127.0.0.1:{plan.port}", "max_connections": 20_000}
        if plan.tls:
            listener["tls"] = {"certificates": [{"cert": str(plan.tls.cert), "key": str(plan.tls.key)}]}
        scheme = "h2c" if plan.http2_upstream else "http"
        file = {
            "workers": plan.workers,
            "listeners": [listener],
            "admin": {"address": f"127.0.0.1:{free_port()}"},
            "upstreams": {"up": {"endpoints": [f"{scheme}://127.0.0.1:{plan.upstream}"], "keepalive_connections": 256}},
            "routes": routes,
        }
        if plan.keyed:
            file["max_local_buckets"] = 2_000_000
        if plan.limit:
            file["limits"] = {"per-client": self.limit(plan)}
        if plan.shared:
            file["store"] = {"redis": f"redis://127.0.0.1:{plan.redis}"}
        return file

    def limit(self, plan):
        limit = {"key": {"header": "x-key"} if plan.keyed else "client_ip"}
        if plan.limit == "deny":
            return {**limit, "rate": "1/h", "burst": 1}
        if plan.keyed and not plan.shared:
            # A bucket must not be full again before all were asked for, as a full one is forgotten; and one request
            # alone must not be over. A bucket that would take more than a year to fill is refused.
            return {**limit, "rate": "100/h", "burst": 800_000}
        consistency = {"consistency": self.consistency} if plan.shared else {}
        return {**limit, "rate": "1000000/s", "burst": 1_000_000, **consistency}

    def version(self):
        return machine.first_line([self.binary, "--version"])


class Leased(Tollgate):
    name = "tollgate-leased"
    scenarios = frozenset({"redis-pass", "redis-keys"})
    consistency = "leased"
