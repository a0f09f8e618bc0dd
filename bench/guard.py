#!/usr/bin/env python3
"""Counts the instructions of one request and says when there are more than were accepted: `make guard`.

Runs the gateway under valgrind's callgrind, once with a few requests of every kind and once for each kind with many
more of it; the difference is what those took. Only the worker's thread counts: what is done by the clock is done by
others. What is left of noise is two thousandths at most: hash seeds, and how buffers happen to lie.

    bench/guard.py BINARY            compare with bench/instructions.json
    bench/guard.py BINARY --accept   write what is counted there
"""

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from service import Failed, Service, free_port

ACCEPTED = Path(__file__).with_name("instructions.json")

# A rise by more than this fails; with another compiler than the accepted counts are of, a rise by more than that.
MOST = 0.03
MOST_ELSEWHERE = 0.10

WARM = 20
COUNTED = 200

# Name: path, status.
KINDS = {
    "forwarded": ("/", 200),
    "limited": ("/limited", 200),
    "denied": ("/denied", 429),
}

# The file that tests/cost counts allocations and system calls with, too.
FILE = (Path(__file__).parent.parent / "tests" / "cost" / "routes.yaml").read_text()

REQUEST = (
    "GET {path} HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: guard/1.0\r\nAccept: */*\r\n"
    "Authorization: Bearer 0123456789abcdef\r\n\r\n"
)
ANSWER = (
    b"HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nServer: guard\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 200\r\n\r\n" + b"x" * 200
)


def upstream():
    """Answers every request the same, until the program ends. The port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection):
        while connection.recv(8192):
            connection.sendall(ANSWER)

    def accept():
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


def ask(connection, path, status):
    connection.sendall(REQUEST.format(path=path).encode())
    answer = b""
    while True:
        piece = connection.recv(65536)
        if not piece:
            raise Failed(f"GET {path}: the gateway closes")
        answer += piece
        head, end, body = answer.partition(b"\r\n\r\n")
        if end and len(body) >= int(re.search(rb"content-length: (\d+)", head, re.I)[1]):
            break
    # The first of those to be denied passes.
    if status not in (int(head.split()[1]), 429):
        raise Failed(f"GET {path}: {head.splitlines()[0]!r}")


def instructions(binary, upstream_port, more):
    """What each thread executed while it served some requests of every kind, and then those of the kind `more`."""
    with tempfile.TemporaryDirectory(prefix="tollgate-guard-") as scratch:
        scratch, port = Path(scratch), free_port()
        file = FILE.replace('"LISTENER"', f'"127.0.0.1:{port}"').replace("//UPSTREAM", f"//127.0.0.1:{upstream_port}")
        (scratch / "routes.yaml").write_text(file)
        command = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={scratch}/out"]
        gateway = [binary.resolve(), "run", "--config", scratch / "routes.yaml"]
        with Service([*command, *gateway], os.sched_getaffinity(0), scratch / "log") as service:
            service.wait_for(port, 60)
            with socket.create_connection(("127.0.0.1", port), 30) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for path, status in KINDS.values():
                    for _ in range(WARM):
                        ask(connection, path, status)
                for _ in range(COUNTED if more else 0):
                    ask(connection, *KINDS[more])
            service.process.terminate()
            service.process.wait(60)
            # Without the first, which takes the measure of clocks when it starts: that depends on how busy the machine is.
            return [thread_total(file) for file in sorted(scratch.glob("out-*"))[1:]]


def thread_total(file):
    total = re.search(r"^(?:totals|summary): (\d+)", file.read_text(errors="replace"), re.M)
    return int(total[1]) if total else 0


def count(binary):
    """Instructions of one request of each kind."""
    port = upstream()
    # Two at a time: each runs one thread at a time.
    with ThreadPoolExecutor(2) as pool:
        runs = pool.map(lambda more: instructions(binary, port, more), [None, *KINDS])
        few, *many = list(runs)
    counts = {}
    for kind, threads in zip(KINDS, many):
        if len(threads) != len(few) or not few:
            raise Failed(f"{len(few)} threads in one run and {len(threads)} in another: nothing to compare")
        # The worker is the one that worked.
        counts[kind] = round(max(more - less for less, more in zip(few, threads)) / COUNTED)
    return counts


def compiler():
    return subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def compare(accepted, counts):
    """Prints a line for each kind. Those that rose too much."""
    same = accepted.get("compiler") == compiler()
    most = MOST if same else MOST_ELSEWHERE
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
    if risen := compare(accepted.get(build, {}), counts):
        sys.exit(
            f"guard: {' and '.join(risen)}: more instructions than were accepted ({build} build).\n"
            f"guard: where: valgrind --tool=callgrind {options.binary} run --config …, then callgrind_annotate.\n"
            "guard: if they are worth it, `make guard-accept`, and say in the commit what they buy."
        )


main()
