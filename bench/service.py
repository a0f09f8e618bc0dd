"""Programs that run while something is measured, each on its CPU, and ended when they are not needed.

Guarantees that nothing outlives the benchmark, and that a program which does not come up says why in its own words.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time


class Failed(Exception):
    """Something that was to be measured does not work; the text says what, and shows what it said."""


class Service:
    """A program in the foreground, in a session of its own."""

    def __init__(self, command, cpus, log, environment=None, descriptors=()):
        self.log = log
        with open(log, "wb") as output:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=[kept.fileno() for kept in descriptors],
                env={**os.environ, **(environment or {})},
                preexec_fn=lambda: os.sched_setaffinity(0, cpus),
            )

    @property
    def id(self):
        return self.process.pid

    def wait_for(self, port, seconds=15.0):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return self
            time.sleep(0.02)
        raise Failed(f"does not listen on port {port}: {self.said()}")

    def said(self, most=600):
        with open(self.log, errors="replace") as file:
            return file.read()[-most:].strip() or "(it said nothing)"

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(2)
        # Workers of a master that is gone. The group is of our making: nobody else is in it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.id, signal.SIGKILL)
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
