"""Who is compared. Each peer is a class in a file of its own: what it can do, and the configuration that does it.

All are configured for the same work: keep-alive on both sides, X-Forwarded-For added, no access log, bodies streamed as
they come, as many workers as they are told.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    cert: Path
    key: Path
    both: Path


@dataclass(frozen=True)
class Plan:
    """What a peer is to do, and where."""

    port: int
    upstream: int
    redis: int
    dir: Path
    workers: int
    # None, "pass" or "deny".
    limit: str | None = None
    # The limit's buckets are in Redis.
    shared: bool = False
    # The limit counts by the field x-key, not by address.
    keyed: bool = False
    # /service-1/* to /service-n/* in place of one route for everything.
    routes: int = 0
    # Clients speak HTTP/2, and know that they may (RFC 9113 §3.3). Towards the upstream it is HTTP/1.1 as ever.
    http2: bool = False
    # Clients speak TLS: the certificate and its key, in a file each and in one.
    tls: "Certificate | None" = None
    # The upstream speaks HTTP/2, and is known to.
    http2_upstream: bool = False


class Peer:
    """One way to proxy."""

    name: str
    # The scenarios that it can run, by name.
    scenarios: frozenset
    # A sentence on how to get it.
    install: str
    # Figures of ours are divided by those of others.
    ours = False

    def missing(self):
        """What is not there. None: it can be measured."""
        raise NotImplementedError

    def command(self, plan):
        """Writes its configuration into `plan.dir`. What to run then, in the foreground."""
        raise NotImplementedError

    def environment(self, plan):
        return {}

    def version(self):
        raise NotImplementedError


BASICS = frozenset({"forward", "body-64k", "upload-1m"})
HTTP2 = frozenset({"h2-forward"})
TLS = frozenset({"tls-forward", "tls-h2-forward", "tls-body-64k", "tls-handshake", "tls-resume", "tls-memory"})
LOCAL = frozenset({"local-pass", "local-deny"})
SHARED = frozenset({"redis-pass", "redis-keys", "redis-deny"})


def all_peers():
    from peers import envoy, haproxy, nginx, tollgate, traefik

    return [
        tollgate.Tollgate(),
        tollgate.Leased(),
        nginx.Nginx(),
        nginx.NginxLua(),
        haproxy.Haproxy(),
        traefik.Traefik(),
        envoy.Envoy(),
    ]
