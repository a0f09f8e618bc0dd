"""What is not requests as fast as they come: latency at a rate, memory, cost by how many there are, and who gets the
connections.

Each is a function from the stage and a peer to a list of rows; but the first is measured in rounds, and is one row.
"""

import time
from dataclasses import replace

import load
import machine
import measure
from scenarios import SCENARIOS
from service import Failed

FORWARD = next(scenario for scenario in SCENARIOS if scenario.name == "forward")
KEYED = replace(FORWARD, name="keys", limit="pass", clients=1)
SHARED = next(scenario for scenario in SCENARIOS if scenario.name == "redis-pass")

# Of a latency: fewer requests tell nothing of one in a thousand.
ENOUGH = 3_000

WAITING = 2_000
TRACKED = 100_000
PIPELINE = 16


def half_peak(stage, peer, options):
    """p99 at half of what ours takes at most, which is `options.peak` requests a second."""
    rate = options.peak / 2
    with stage.peer(peer, FORWARD) as (service, port):
        load.flat_out(port, 1)
        options.spare.wait_until_quiet()
        meter = measure.Meter(stage, service.id)
        sent = load.at_rate(port, options.seconds, rate, stage.dir)
        row = meter.row(sent)
    measure.check(FORWARD, sent)
    if row["per_second"] < 0.95 * rate:
        raise Failed(f"took {row['per_second']:.0f} requests/s of {rate:.0f}")
    return {**row, "scenario": "half-peak", "peer": peer.name, "memory_mib": None}


def latency(stage, peer, options):
    """What a limit in Redis adds to the time that a request takes, at half of what it lets pass at most."""
    for away_ms in (0, 1, 5):
        with stage.redis_away(away_ms):
            for connections in (1, 64):
                with stage.peer(peer, SHARED) as (_, port):
                    most = load.flat_out(port, 1, connections)
                    rate = most.requests / most.seconds / 2
                    limited = paced(stage, options, port, rate, connections)
                with stage.peer(peer, FORWARD) as (_, port):
                    load.flat_out(port, 1, connections)
                    plain = paced(stage, options, port, rate, connections)
                yield {
                    "peer": peer.name,
                    "away_ms": away_ms,
                    "connections": connections,
                    "per_second": rate,
                    **{name: [getattr(limited, name), getattr(plain, name)] for name in load.LATENCIES},
                }


def paced(stage, options, port, rate, connections):
    """At that rate, for long enough that one in a thousand tells something."""
    options.spare.wait_until_quiet()
    seconds = min(20, max(options.seconds, round(ENOUGH / rate)))
    sent = load.at_rate(port, seconds, rate, stage.dir, connections)
    measure.check(SHARED, sent)
    return sent


def memory(stage, peer, options):
    """At rest, for each connection that waits, and for each key that is counted."""
    rows = waiting(stage, peer, FORWARD)
    if peer.ours:
        with stage.peer(peer, KEYED) as (service, port):
            load.flat_out(port, 1, keys=1, pipeline=PIPELINE)
            before = machine.memory(service.id)
            track(port, TRACKED)
            each = (machine.memory(service.id) - before) / TRACKED
        rows.append(figure(peer, f"for each of {TRACKED} keys counted in process", each, "B"))
    return rows


def tls_memory(stage, peer, options):
    """The same of connections over TLS."""
    return waiting(stage, peer, replace(FORWARD, tls=True))


def waiting(stage, peer, scenario):
    with stage.peer(peer, scenario) as (service, port):
        at_rest = machine.memory(service.id)
        with load.Waiting(port, WAITING, scenario.tls):
            each = (machine.memory(service.id) - at_rest) / WAITING
    return [
        figure(peer, "at rest", at_rest / (1 << 20), "MiB"),
        figure(peer, f"for each of {WAITING} waiting connections", each / 1024, "KiB"),
    ]


def keys(stage, peer, options):
    """A limit that passes, counted for so many clients."""
    rows = []
    for count in (1, 1_000, 1_000_000):
        with stage.peer(peer, replace(KEYED, clients=count)) as (service, port):
            track(port, count)
            rows.append(scaled(stage, service, options, peer, f"{count} keys", port, keys=count))
    return rows


def routes(stage, peer, options):
    """Forwarding, by one of so many routes at random."""
    rows = []
    for count in (1, 1_000):
        with stage.peer(peer, FORWARD, routes=count) as (service, port):
            load.flat_out(port, 1, routes=count)
            rows.append(scaled(stage, service, options, peer, f"{count} routes", port, routes=count))
    return rows


def connections(stage, peer, options):
    """Forwarding, with so many connections open: 64 of them ask all the time, the others wait."""
    rows = []
    for count in (1, 64, 1_000, 10_000):
        if count + 1_000 > options.descriptors:
            rows.append(figure(peer, f"{count} connections", None, f"not measured: ulimit -n is {options.descriptors}"))
            continue
        active = min(count, 64)
        with stage.peer(peer, FORWARD) as (service, port), load.Waiting(port, count - active):
            load.flat_out(port, 1, connections=active)
            rows.append(scaled(stage, service, options, peer, f"{count} connections", port, connections=active))
    return rows


def spread(stage, peer, options):
    """Two workers on both CPUs: how much of the connections the busier one has."""
    rows = []
    for count in (64, 1_000):
        with stage.peer(peer, FORWARD, cpus=frozenset({machine.PROXY_CPU, machine.LOAD_CPU})) as (service, port):
            before = machine.watched_by_worker(service.id)
            with load.Waiting(port, count):
                after = machine.watched_by_worker(service.id)
            grown = [after[worker] - before.get(worker, 0) for worker in after]
        share = 100 * max(grown) / max(1, sum(many for many in grown if many > 0))
        rows.append(figure(peer, f"of {count} connections, the busier of 2 workers has", share, "%"))
    return rows


def track(port, count):
    """Has `count` keys counted."""
    started = 0
    end = time.monotonic() + 180
    while started < count:
        if time.monotonic() > end:
            raise Failed(f"only {started} of {count} keys were asked for in three minutes")
        seconds = 1 if count <= TRACKED else 8
        sent = load.flat_out(port, seconds, keys=count, start=started, pipeline=PIPELINE)
        measure.check(KEYED, sent)
        started += sent.requests


def scaled(stage, service, options, peer, what, port, **load_options):
    options.spare.wait_until_quiet()
    meter = measure.Meter(stage, service.id)
    sent = load.flat_out(port, options.seconds, **load_options)
    row = meter.row(sent)
    measure.check(FORWARD, sent)
    return figure(peer, what, row["cpu_us"], "µs/request", row["foreign"])


def figure(peer, what, value, unit, foreign=None):
    return {"peer": peer.name, "what": what, "value": value, "unit": unit, "foreign": foreign}


# Those that depend on nobody else's figures are measured once, and not in each round.
ONCE = {"memory": memory, "tls-memory": tls_memory, "keys": keys, "routes": routes, "connections": connections, "spread": spread}
