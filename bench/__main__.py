"""Measures what a request costs here and in others' gateways, side by side: `make bench`, docs/performance.md.

Guarantees that peers are measured in turn, round by round, and that one which is missing or does not work is said to be
so.
"""

import argparse
import json
import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

import further
import load
import machine
import report
from measure import Spare, measure
from peers import all_peers
from scenarios import NAMES, OURS, SCENARIOS
from service import Failed
from stage import Stage

OUTPUT = Path(os.environ.get("CARGO_TARGET_DIR", "target")) / "bench"
TOOLS = ["openssl", "wrk", "h2load", "nghttp", "nginx", "redis-server", "redis-cli"]
MARKS = "<!-- begin: written by make bench -->\n", "<!-- end: written by make bench -->\n"


def parse():
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.partition("\n")[0])
    known = ",".join(peer.name for peer in all_peers())
    parser.add_argument("--peers", default=known, help=f"of {known}")
    parser.add_argument("--scenarios", default=",".join(NAMES), help=f"of {','.join(NAMES)}")
    parser.add_argument("--seconds", type=int, default=3, help="that each measurement takes (default 3)")
    parser.add_argument("--rounds", type=int, default=3, help="each measures all of them once (default 3)")
    parser.add_argument(
        "--spare", type=float, default=180, help="seconds in all to wait for a quiet machine and measure again (180)"
    )
    parser.add_argument("--docs", action="store_true", help="write the tables into docs/performance.md, too")
    parser.add_argument("--again", action="store_true", help="only the tables, from the last run's figures")
    options = parser.parse_args()
    for given, names in (("scenarios", NAMES), ("peers", known.split(","))):
        chosen = getattr(options, given).split(",")
        unknown = [name for name in chosen if name not in names]
        if unknown:
            parser.error(f"--{given}: there is no {', '.join(unknown)}; there are {', '.join(names)}")
        setattr(options, given, chosen)
    if min(options.seconds, options.rounds) < 1 or options.spare < 0:
        parser.error("--seconds and --rounds are at least 1, --spare is at least 0")
    options.spare = Spare(options.spare)
    return options


def main():
    options = parse()
    if not options.again:
        prepare(options)
        result = run(options)
        OUTPUT.mkdir(parents=True, exist_ok=True)
        (OUTPUT / "results.json").write_text(json.dumps(result, indent=1))
    result = json.loads((OUTPUT / "results.json").read_text())
    text = report.render(result)
    (OUTPUT / "results.md").write_text(text)
    if options.docs:
        paste(Path("docs/performance.md"), text)
    print(text)
    print(f"The figures are in {OUTPUT}/results.json, the tables in {OUTPUT}/results.md.")
    sys.exit(bool(result["failed"]))


def prepare(options):
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        sys.exit(f"bench: {', '.join(missing)} missing. Debian has them; bench/install gets all that is needed.")
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("bench: needs two CPUs: one for the proxy, one for everything around it.")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    options.descriptors = most
    os.sched_setaffinity(0, {machine.LOAD_CPU})
    # Exits by way of the clean-ups, which end what was started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def run(options):
    chosen = [peer for peer in all_peers() if peer.name in options.peers]
    present = [peer for peer in chosen if not peer.missing()]
    absent = {peer.name: f"there is no {peer.missing()}: {peer.install}" for peer in chosen if peer.missing()}
    for name, why in absent.items():
        progress(f"{name} is left out: {why}")
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine.describe(),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "peers": [peer.name for peer in present],
        "versions": {peer.name: peer.version() for peer in present},
        "absent": absent,
        "failed": {},
        "rows": [],
        "further": [],
        "latency": [],
    }
    with Stage() as stage:
        for turn in range(options.rounds):
            # There and back, so that nobody is always measured after the same other.
            round_of(stage, present if turn % 2 == 0 else present[::-1], turn, options, result)
        if "latency" in options.scenarios:
            for peer in present:
                attempt(result, peer, "latency", lambda: latency(stage, peer, options, result))
        for name in [name for name in options.scenarios if name in further.ONCE]:
            for peer in present:
                attempt(result, peer, name, lambda: once(stage, peer, name, options, result))
    return result


def round_of(stage, peers, turn, options, result):
    for scenario in SCENARIOS:
        if scenario.name in options.scenarios:
            for peer in peers:
                act = lambda: note(result, turn, measure(stage, peer, scenario, options))
                attempt(result, peer, scenario.name, act)
    if "half-peak" in options.scenarios:
        options.peak = getattr(options, "peak", None) or peak(stage, peers, result)
        for peer in peers if options.peak else []:
            attempt(result, peer, "half-peak", lambda: note(result, turn, further.half_peak(stage, peer, options)))


def attempt(result, peer, name, act):
    """Unless the peer cannot do it, or has failed to before. Once more if it fails: the machine may have been too busy."""
    label = f"{peer.name} in {name}"
    if name not in peer.scenarios or label in result["failed"]:
        return
    for last in (False, True):
        try:
            return act()
        except Failed as error:
            said = " ".join(str(error).split())
            progress(f"{label} FAILED{'' if last else ', once more'}: {said}")
    result["failed"][label] = said


def note(result, turn, row):
    result["rows"].append({**row, "round": turn})
    busy = f", others use {row['foreign']:.0%} of a CPU" if row["foreign"] > 0.05 else ""
    progress(
        f"round {turn + 1}: {row['scenario']:11} {row['peer']:16} {row['cpu_us']:8.1f} µs/request"
        f" {row['per_second']:8.0f}/s  p99 {row['p99_ms']:.2f} ms{busy}"
    )


def once(stage, peer, name, options, result):
    for row in further.ONCE[name](stage, peer, options):
        result["further"].append({**row, "scenario": name})
        said = "" if row["value"] is None else f"{row['value']:.1f} "
        progress(f"{name:11} {peer.name:16} {row['what']}: {said}{row['unit']}")


def latency(stage, peer, options, result):
    result["latency"] = [row for row in result["latency"] if row["peer"] != peer.name]
    for row in further.latency(stage, peer, options):
        result["latency"].append(row)
        told = ", ".join(f"{name[:-3]} {row[name][0]:.2f}" for name in load.LATENCIES)
        progress(f"latency     {peer.name:16} Redis {row['away_ms']} ms away, {row['connections']} connections: {told} ms")


def peak(stage, peers, result):
    """What ours forwards at most, in requests a second: of this run's first round, or measured now."""
    known = report.rows_of(result, OURS, "forward")
    ours = next((peer for peer in peers if peer.name == OURS), None)
    if known:
        return next(iter(known.values()))["per_second"]
    if not ours:
        progress("half-peak is left out: it is half of our peak, and tollgate is not among the peers")
        return None
    with stage.peer(ours, further.FORWARD) as (_, port):
        sent = load.flat_out(port, 2)
        return sent.requests / sent.seconds


def paste(file, text):
    """Replaces what is between the marks."""
    before, begin, rest = file.read_text().partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not end:
        sys.exit(f"bench: {file} lacks the marks {MARKS[0].strip()} and {MARKS[1].strip()}")
    file.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def progress(text):
    print(text, file=sys.stderr, flush=True)


main()
