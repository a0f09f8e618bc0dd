#!/usr/bin/env python3
"""Counts the instructions of one request and says when there are more than were accepted: `make guard`.

Runs the gateway under valgrind's callgrind, once with a few requests of every kind and once for each kind with many
more of it.

    bench/guard.py BINARY            compare with bench/instructions.json
    bench/guard.py BINARY --accept   write what is counted there
"""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from callgrind import COUNTED, WARM, ask, each, threads, upstream
from service import Failed

ACCEPTED = Path(__file__).with_name("instructions.json")

# A rise by more than this fails; with another compiler than the accepted counts are of, a rise by more than that. The build
# that tests run on is judged by more: it inlines nothing, so a function that is moved or split changes its counts.
MOST = {"guard": 0.01, "debug": 0.03}
MOST_ELSEWHERE = 0.10

# Name: path, status.
KINDS = {
    "forwarded": ("/", 200),
    "limited": ("/limited", 200),
    "denied": ("/denied", 429),
}

# The file that tests/cost counts allocations and system calls with, too.
FILE = (Path(__file__).parent.parent / "tests" / "cost" / "routes.yaml").read_text()


def drive(connection, more):
    """Some requests of every kind, and then those of the kind `more`."""
    for path, status in KINDS.values():
        for _ in range(WARM):
            ask(connection, path, status)
    for _ in range(COUNTED if more else 0):
        ask(connection, *KINDS[more])


def count(binary):
    """Instructions of one request of each kind."""
    port = upstream()
    # Two at a time: each runs one thread at a time.
    with ThreadPoolExecutor(2) as pool:
        run = lambda more: threads(binary, FILE, port, lambda connection: drive(connection, more))
        few, *many = list(pool.map(run, [None, *KINDS]))
    return {kind: each(few, counted) for kind, counted in zip(KINDS, many)}


def compiler():
    return subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def compare(accepted, counts, most):
    """Prints a line for each kind. Those that rose too much."""
    same = accepted.get("compiler") == compiler()
    most = most if same else MOST_ELSEWHERE
    if not same:
        print(f"guard: accepted with {accepted.get('compiler')}, counted with {compiler()}: {most:.0%} more may be")
    risen = []
    for kind, counted in counts.items():
        before = accepted.get("instructions", {}).get(kind, 0)
        change = counted / before - 1 if before else float("inf")
        print(f"guard: a {kind} request takes {counted} instructions, {change:+.1%} of the {before} accepted")
        if change > most:
            risen.append(kind)
        elif change < -most:
            print("guard: so much less is worth keeping: `make guard-accept`")
    return risen


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("binary", type=Path)
    parser.add_argument("--accept", action="store_true", help="write what is counted to bench/instructions.json")
    options = parser.parse_args()
    try:
        counts = count(options.binary)
    except Failed as error:
        sys.exit(f"guard: {error}")
    # Each profile has counts of its own: it is called as the directory that cargo puts its programs in.
    build = options.binary.resolve().parent.name
    accepted = json.loads(ACCEPTED.read_text()) if ACCEPTED.exists() else {}
    if options.accept:
        accepted[build] = {"compiler": compiler(), "instructions": counts}
        ACCEPTED.write_text(json.dumps(accepted, indent=2, sort_keys=True) + "\n")
        print(f"guard: {ACCEPTED.name} says of {build} now: {counts}")
        return
    if risen := compare(accepted.get(build, {}), counts, MOST.get(build, MOST_ELSEWHERE)):
        sys.exit(
            f"guard: {' and '.join(risen)}: more instructions than were accepted ({build} build).\n"
            f"guard: where: valgrind --tool=callgrind {options.binary} run --config …, then callgrind_annotate.\n"
            "guard: if they are worth it, `make guard-accept`, and say in the commit what they buy."
        )


main()
