"""One scenario, one peer, once: a row of figures."""

import threading
import time
from contextlib import contextmanager

import load
import machine
from service import Failed

# Of one CPU: more than this used by others spoils a row.
DISTURBED = 0.10


class Spare:
    """Seconds for waiting until the machine is quiet and for measuring again, so that a run ends on a busy one, too."""

    MOST_AT_ONCE = 4.0

    def __init__(self, seconds):
        self.seconds = seconds

    def wait_until_quiet(self):
        with self.spent():
            machine.wait_until_quiet(min(self.MOST_AT_ONCE, self.seconds))

    @contextmanager
    def spent(self):
        begun = time.monotonic()
        yield
        self.seconds = max(0.0, self.seconds - (time.monotonic() - begun))


def measure(stage, peer, scenario, options):
    """The row; measured again, once, if somebody else was busy. The row says how much others were."""
    row = once(stage, peer, scenario, options)
    if row["foreign"] <= DISTURBED or not options.spare.seconds:
        return row
    with options.spare.spent():
        other = once(stage, peer, scenario, options)
    return min(row, other, key=lambda row: row["foreign"])


def once(stage, peer, scenario, options):
    with stage.peer(peer, scenario) as (service, port):
        at_rest = machine.memory(service.id)
        send = sender(stage, scenario, port)
        send(1)
        options.spare.wait_until_quiet()
        with Peak(service.id, scenario.upload > 0) as peak:
            meter = Meter(stage, service.id)
            sent = send(options.seconds)
            row = meter.row(sent)
    check(scenario, sent)
    row.update(peer=peer.name, scenario=scenario.name, memory_mib=peak.bytes / (1 << 20))
    row["transfer_kib"] = (peak.bytes - at_rest) / (64 << 10) if scenario.upload else None
    return row


def sender(stage, scenario, port):
    if scenario.streams:
        return lambda seconds: load.over_http2(port, seconds, scenario.streams, stage.dir, tls=scenario.tls)
    options = {}
    if scenario.upload:
        options["upload"] = scenario.upload
    if scenario.clients:
        options["keys"] = scenario.clients
    if scenario.fresh == "whole":
        return lambda seconds: load.handshakes(port, seconds)
    if scenario.fresh:
        options["fresh"] = 1
    return lambda seconds: load.flat_out(port, seconds, path=scenario.path, tls=scenario.tls, **options)


def check(scenario, sent):
    if scenario.limit == "deny" and sent.not_2xx < 0.99 * sent.requests:
        raise Failed(f"only {sent.not_2xx} of {sent.requests} requests were denied")
    if scenario.limit != "deny" and sent.not_2xx:
        raise Failed(f"{sent.not_2xx} of {sent.requests} requests were not answered with 2xx")
    if sent.broken:
        raise Failed(f"{sent.broken} requests broke off")


class Meter:
    """What was used between its making and its reading."""

    def __init__(self, stage, process):
        self.stage, self.process = stage, process
        self.begun = self.read()

    def read(self):
        # The proxy's own last: reading takes time, too.
        return {
            "calls": self.stage.redis_calls(),
            "helpers": self.stage.helpers_cpu(),
            "bench": time.process_time(),
            "busy": machine.busy_seconds(),
            "time": time.monotonic(),
            "proxy": machine.cpu_seconds(self.process),
        }

    def row(self, sent):
        ended = self.read()
        used = {name: ended[name] - self.begun[name] for name in ended}
        foreign = used["busy"] - used["proxy"] - used["helpers"] - used["bench"] - sent.cpu_seconds
        return {
            "cpu_us": 1e6 * used["proxy"] / sent.requests,
            "per_second": sent.requests / sent.seconds,
            "p50_ms": sent.p50_ms,
            "p99_ms": sent.p99_ms,
            "calls": used["calls"] / sent.requests,
            "proxy_share": used["proxy"] / used["time"],
            "foreign": max(0.0, foreign / used["time"]),
        }


class Peak:
    """The most memory that was seen: looked at often where that is the question, and otherwise at the end."""

    def __init__(self, process, often):
        self.process, self.often, self.bytes = process, often, 0
        self.over = threading.Event()
        self.watcher = threading.Thread(target=self.watch)

    def watch(self):
        while not self.over.wait(0.2 if self.often else 3600):
            self.bytes = max(self.bytes, machine.memory(self.process))

    def __enter__(self):
        self.watcher.start()
        return self

    def __exit__(self, *_):
        self.bytes = max(self.bytes, machine.memory(self.process))
        self.over.set()
        self.watcher.join()
