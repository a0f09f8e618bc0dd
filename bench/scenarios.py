"""What is measured, and what it is to be at most.

A scenario is a kind of request and a limit; a target is a ratio of two figures of the same round. The ratios are the
product's promises about its cost: they hold on any machine, where microseconds do not.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    name: str
    what: str
    path: str = "/"
    upload: int = 0
    limit: str | None = None
    shared: bool = False
    # How many clients there are, told apart by a field. 0: all requests are one address's.
    clients: int = 0
    # Over HTTP/2, so many requests at once on each connection. 0: over HTTP/1.1, one.
    streams: int = 0
    # Clients speak TLS.
    tls: bool = False
    # Each request has a connection of its own: with a whole handshake, or with one that resumes an earlier session.
    fresh: str | None = None
    # The upstream speaks HTTP/2 without TLS.
    http2_upstream: bool = False


@dataclass(frozen=True)
class Target:
    what: str
    # A peer and a scenario each.
    ours: tuple
    other: tuple
    most: float
    # Of a row: what is compared.
    figure: str = "cpu_us"


SCENARIOS = [
    Scenario(
        "redis-keys",
        "GET, a body of 200 bytes, under a limit in Redis that lets all pass, 10 000 clients in turn",
        limit="pass",
        shared=True,
        clients=10_000,
    ),
    Scenario("forward", "the same without a limit"),
    Scenario("local-pass", "the same under a limit of the node's own that lets all pass", limit="pass"),
    Scenario("local-deny", "the same under one that denies", limit="deny"),
    Scenario("redis-pass", "that of redis-keys, one client", limit="pass", shared=True),
    Scenario("redis-deny", "the same under a limit that denies", limit="deny", shared=True),
    Scenario("body-64k", "GET, a body of 64 KiB", path="/64k"),
    Scenario("upload-1m", "POST of 1 MiB, streamed", path="/upload", upload=1 << 20),
    Scenario("h2-forward", "that of forward over HTTP/2 without TLS, 8 streams on each of 8 connections", streams=8),
    Scenario("tls-forward", "that of forward over TLS", tls=True),
    Scenario("tls-h2-forward", "that of h2-forward over TLS", streams=8, tls=True),
    Scenario("tls-body-64k", "that of body-64k over TLS", path="/64k", tls=True),
    Scenario("tls-handshake", "that of forward, each over a TLS connection of its own", tls=True, fresh="whole"),
    Scenario("tls-resume", "the same with sessions that are resumed", tls=True, fresh="resumed"),
    Scenario("h2-upstream", "that of forward to an upstream of HTTP/2 without TLS", http2_upstream=True),
]

# Not requests as fast as they come: see further.py.
FURTHER = ["half-peak", "latency", "memory", "tls-memory", "keys", "routes", "connections", "spread"]

NAMES = [scenario.name for scenario in SCENARIOS] + FURTHER

OURS = "tollgate"
LEASED = "tollgate-leased"

TARGETS = [
    Target("10 000 clients by Redis ÷ nginx with Lua", (OURS, "redis-keys"), ("nginx-lua", "redis-keys"), 0.55),
    Target("10 000 clients by Redis ÷ forwarding without", (OURS, "redis-keys"), (OURS, "forward"), 1.35),
    Target("10 000 clients by Redis, leased ÷ forwarding without", (LEASED, "redis-keys"), (OURS, "forward"), 1.15),
    Target("forwarding ÷ nginx", (OURS, "forward"), ("nginx", "forward"), 1.00),
    Target("a limit that passes ÷ forwarding without", (OURS, "local-pass"), (OURS, "forward"), 1.03),
    Target("a limit that passes ÷ nginx limit_req's", (OURS, "local-pass"), ("nginx", "local-pass"), 1.05),
    Target("a denial ÷ nginx limit_req's", (OURS, "local-deny"), ("nginx", "local-deny"), 1.00),
    Target("a limit in Redis, exact ÷ nginx with Lua", (OURS, "redis-pass"), ("nginx-lua", "redis-pass"), 0.50),
    Target("a limit in Redis, leased ÷ nginx with Lua", (LEASED, "redis-pass"), ("nginx-lua", "redis-pass"), 0.45),
    Target("a limit in Redis, exact ÷ Traefik's", (OURS, "redis-pass"), ("traefik", "redis-pass"), 0.30),
    Target("a limit in Redis, leased ÷ forwarding without", (LEASED, "redis-pass"), (OURS, "forward"), 1.05),
    Target("a denial by Redis ÷ nginx with Lua", (OURS, "redis-deny"), ("nginx-lua", "redis-deny"), 0.42),
    Target("responses of 64 KiB ÷ nginx", (OURS, "body-64k"), ("nginx", "body-64k"), 0.85),
    Target("forwarding over TLS ÷ nginx", (OURS, "tls-forward"), ("nginx", "tls-forward"), 0.80),
    Target("forwarding over HTTP/2 and TLS ÷ nginx", (OURS, "tls-h2-forward"), ("nginx", "tls-h2-forward"), 0.85),
    Target("responses of 64 KiB over TLS ÷ nginx", (OURS, "tls-body-64k"), ("nginx", "tls-body-64k"), 1.10),
    # At least 0.9 of nginx's handshakes a second.
    Target("a TLS handshake and a request ÷ nginx", (OURS, "tls-handshake"), ("nginx", "tls-handshake"), 1.11),
    Target("uploads of 1 MiB ÷ nginx", (OURS, "upload-1m"), ("nginx", "upload-1m"), 0.67),
    Target("p99 at half of our peak ÷ nginx at that rate", (OURS, "half-peak"), ("nginx", "half-peak"), 1.10, "p99_ms"),
]

# Bytes of memory for each upload that is under way.
TRANSFER_MOST = 256 << 10
