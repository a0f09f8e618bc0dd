"""Counts the instructions that a gateway's worker takes for requests, under valgrind's callgrind.

Two runs, one with more requests than the other: the difference is what those took. Only the worker's thread counts: what is
done by the clock is done by others. What is left of noise is two thousandths at most: hash seeds, and how buffers happen to
lie.
"""

import os
import re
import socket
import tempfile
import threading
from pathlib import Path

from service import Failed, Service, free_port

WARM = 20
COUNTED = 200

REQUEST = (
    "GET {path} HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: guard/1.0\r\nAccept: */*\r\n{more}\r\n{body}"
)
CREDENTIAL = "Authorization: Bearer 0123456789abcdef\r\n"
ANSWER = (
    b"HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nServer: guard\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 200\r\n\r\n" + b"x" * 200
)


def upstream():
    """Answers every request the same, until the program ends. The port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection):
        received = b""
        while piece := connection.recv(8192):
            received += piece
            while (request := whole(received)) is not None:
                received = received[request:]
                connection.sendall(ANSWER)

    def accept():
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


def whole(received):
    """The bytes of the first request in `received`, if all of it is there."""
    head, end, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.I)
    length = int(length[1]) if length else 0
    return len(head) + len(end) + length if end and len(body) >= length else None


def ask(connection, path, status, more="", body=""):
    """Sends a request, with the field lines `more` and with `body`, and reads its answer."""
    if not more.startswith("Authorization:"):
        more = CREDENTIAL + more
    if body:
        more += f"Content-Length: {len(body)}\r\n"
    connection.sendall(REQUEST.format(path=path, more=more, body=body).encode())
    answer = b""
    while True:
        piece = connection.recv(65536)
        if not piece:
            raise Failed(f"GET {path}: the gateway closes")
        answer += piece
        head, end, body = answer.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.I)
        if end and (len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n")):
            break
    # The first of those to be denied passes.
    if status not in (int(head.split()[1]), 429):
        raise Failed(f"GET {path}: {head.splitlines()[0]!r}")


def threads(binary, file, upstream_port, drive):
    """What each thread of a gateway with this file executed, from its start to its end, while `drive` used a connection."""
    with tempfile.TemporaryDirectory(prefix="tollgate-guard-") as scratch:
        scratch, port = Path(scratch), free_port()
        file = file.replace('"LISTENER"', f'"127.0.0.1:{port}"').replace("//UPSTREAM", f"//127.0.0.1:{upstream_port}")
        (scratch / "routes.yaml").write_text(file)
        command = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={scratch}/out"]
        gateway = [binary.resolve(), "run", "--config", scratch / "routes.yaml"]
        with Service([*command, *gateway], os.sched_getaffinity(0), scratch / "log") as service:
            service.wait_for(port, 60)
            with socket.create_connection(("127.0.0.1", port), 30) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                drive(connection)
            service.process.terminate()
            service.process.wait(60)
            # Without the first, which takes the measure of clocks when it starts: that depends on how busy the machine is.
            return [thread_total(file) for file in sorted(scratch.glob("out-*"))[1:]]


def thread_total(file):
    total = re.search(r"^(?:totals|summary): (\d+)", file.read_text(errors="replace"), re.M)
    return int(total[1]) if total else 0


def each(few, many):
    """Instructions of one of the requests that the run `many` has and the run `few` has not."""
    if len(many) != len(few) or not few:
        raise Failed(f"{len(few)} threads in one run and {len(many)} in another: nothing to compare")
    # The worker is the one that worked.
    return round(max(more - less for less, more in zip(few, many)) / COUNTED)
