"""What the machine tells of processes: CPU time, memory, who else is busy.

Guarantees figures of whole process trees, so that a peer with a master and workers is counted as one. Refuses to know
what is measured.
"""

import os
import platform
import re
import subprocess
import time

# The first two that we may use. With one only, __main__.py refuses to measure.
PROXY_CPU, LOAD_CPU = (sorted(os.sched_getaffinity(0)) * 2)[:2]

TICK = os.sysconf("SC_CLK_TCK")


def processes():
    """By id: the parent, and the seconds of CPU used so far, children that were waited for included."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                # The name in parentheses may hold anything.
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(name)] = (int(fields[1]), sum(int(ticks) for ticks in fields[11:15]) / TICK)
    return found


def tree(root, known=None):
    """A process and all that descend from it."""
    known = known or processes()
    members, more = set(), {root} & known.keys()
    while more:
        members |= more
        more = {process for process, (parent, _) in known.items() if parent in members} - members
    return members


def cpu_seconds(root):
    known = processes()
    return sum(known[process][1] for process in tree(root, known))


def memory(root):
    """Bytes in RAM. What processes of the tree share counts once (the kernel's proportional set size)."""
    total = 0
    for process in tree(root):
        try:
            with open(f"/proc/{process}/smaps_rollup") as file:
                total += 1024 * int(re.search(r"^Pss:\s+(\d+)", file.read(), re.M)[1])
        except OSError:
            continue
    return total


def watched_by_worker(root):
    """How many descriptors each epoll instance of the tree watches. Each worker of an event-driven server has one.

    Several descriptors may be one instance: they are told by watching the same.
    """
    counts = {}
    for process in tree(root):
        seen = set()
        for descriptor in sorted(os.listdir(f"/proc/{process}/fd"), key=int):
            try:
                if os.readlink(f"/proc/{process}/fd/{descriptor}") != "anon_inode:[eventpoll]":
                    continue
                with open(f"/proc/{process}/fdinfo/{descriptor}") as file:
                    watched = tuple(re.findall(r"tfd:\s*(\d+)", file.read()))
            except OSError:
                continue
            if watched not in seen:
                seen.add(watched)
                counts[process, descriptor] = len(watched)
    return counts


def busy_seconds():
    """Of all CPUs since boot; what a hypervisor took away counts as busy."""
    with open("/proc/stat") as file:
        fields = [int(ticks) for ticks in file.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICK


def wait_until_quiet(limit=4.0, share=0.12):
    """Until all CPUs together are busy for less than `share` of one. False: they are not within `limit` seconds."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        before = busy_seconds()
        time.sleep(0.3)
        if busy_seconds() - before < 0.3 * share:
            return True
    return False


def describe():
    """The machine in one line."""
    with open("/proc/cpuinfo") as file:
        model = re.search(r"^model name\s*:\s*(.+)$", file.read(), re.M)
    with open("/proc/meminfo") as file:
        gib = int(re.search(r"MemTotal:\s+(\d+)", file.read())[1]) / (1 << 20)
    name = model[1].strip() if model else platform.machine()
    return f"{name}, {os.cpu_count()} CPUs, {gib:.0f} GiB, Linux {platform.release()}"


def first_line(command):
    """What a program says of its version. Some say it on standard error."""
    said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout
    return next((line.strip() for line in said.splitlines() if line.strip()), "?")
