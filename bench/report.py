"""Rows to tables of Markdown.

A ratio is the median over the rounds of our figure ÷ the other's in the same round: what slows the machine for a while
slows both.
"""

from statistics import median

from load import LATENCIES
from scenarios import NAMES, OURS, TARGETS, TRANSFER_MOST

HEAD = {
    "cpu_us": ("CPU µs/request", 1),
    "per_second": ("requests/s", 0),
    "p50_ms": ("p50 ms", 2),
    "p99_ms": ("p99 ms", 2),
    "memory_mib": ("memory MiB", 1),
    "calls": ("Redis calls/request", 2),
    "foreign": ("others' CPU", 2),
}


def render(result):
    parts = [about(result), targets(result), by_scenario(result), latency(result), further(result)]
    return "\n\n".join(part for part in parts if part) + "\n"


def about(result):
    lines = [
        f"Measured {result['date']} on {result['machine']}; {result['rounds']} rounds of {result['seconds']} s.",
        "",
        *(f"- {name}: {version}" for name, version in result["versions"].items()),
        *(f"- {name} was not measured: {why}" for name, why in result["absent"].items()),
        *(f"- **{name} failed**: {why}" for name, why in result["failed"].items()),
    ]
    return "\n".join(lines)


def rows_of(result, peer, scenario):
    """By round."""
    return {row["round"]: row for row in result["rows"] if (row["peer"], row["scenario"]) == (peer, scenario)}


def ratios(result, ours, other, figure):
    """One for each round in which both were measured."""
    mine, theirs = rows_of(result, *ours), rows_of(result, *other)
    return [mine[turn][figure] / theirs[turn][figure] for turn in sorted(mine.keys() & theirs.keys())]


def targets(result):
    lines = [line for target in TARGETS if (line := target_line(result, target))]
    transfers = [row["transfer_kib"] for row in rows_of(result, OURS, "upload-1m").values()]
    if transfers:
        most = TRANSFER_MOST >> 10
        used = median(transfers)
        lines.append(
            f"| memory for each upload under way | {used:.0f} KiB | {min(transfers):.0f} to {max(transfers):.0f} "
            f"| {most} KiB | {verdict(used, most)} |"
        )
    return table("### Targets", "| ours ÷ other | ratio | of the rounds | at most | |", "|---|--:|--:|--:|---|", lines)


def target_line(result, target):
    found = ratios(result, target.ours, target.other, target.figure)
    if not found:
        # Not a word of what was not asked for.
        lacking = any(is_lacking(result, *half) for half in (target.ours, target.other))
        return f"| {target.what} | not measured | | {target.most:.2f} | |" if lacking else None
    ratio = median(found)
    between = f"{min(found):.2f} to {max(found):.2f}"
    return f"| {target.what} | {ratio:.2f} | {between} | {target.most:.2f} | {verdict(ratio, target.most)} |"


def is_lacking(result, peer, scenario):
    return peer in result["absent"] or f"{peer} in {scenario}" in result["failed"]


def verdict(value, most):
    # Rounded as printed.
    return "OK" if round(value, 2) <= most else "**over**"


def by_scenario(result):
    lines = []
    for scenario in NAMES:
        peers = dict.fromkeys(row["peer"] for row in result["rows"] if row["scenario"] == scenario)
        lines += [scenario_line(result, peer, scenario) for peer in sorted(peers, key=result["peers"].index)]
    names = " | ".join(name for name, _ in HEAD.values())
    marks = "|".join("--:" for _ in HEAD)
    return table("### By scenario", f"| scenario | | {names} | ours ÷ it |", f"|---|---|{marks}|--:|", lines)


def scenario_line(result, peer, scenario):
    rows = rows_of(result, peer, scenario).values()
    cells = [cell([row[figure] for row in rows], digits) for figure, (_, digits) in HEAD.items()]
    found = ratios(result, (OURS, scenario), (peer, scenario), "cpu_us") if peer != OURS else []
    ratio = f"{median(found):.2f}" if found else ""
    return f"| {scenario} | {peer} | {' | '.join(cells)} | {ratio} |"


def cell(values, digits):
    known = [value for value in values if value is not None]
    return f"{median(known):.{digits}f}" if known else ""


def latency(result):
    """Sorted so that peers stand beside each other."""
    lines = []
    for row in sorted(result["latency"], key=lambda row: (row["away_ms"], row["connections"])):
        cells = []
        for name in LATENCIES:
            limited, plain = row[name]
            cells.append(f"{limited - plain:+.2f} ({limited:.2f})")
        rate = f"{row['per_second']:.0f}"
        lines.append(f"| {row['away_ms']} ms | {row['connections']} | {row['peer']} | {rate} | {' | '.join(cells)} |")
    head = "| Redis is away | connections | | requests/s | p50 ms | p99 ms | p99.9 ms |"
    return table("### What a limit in Redis adds", head, "|--:|--:|---|--:|--:|--:|--:|", lines)


def further(result):
    lines = []
    for row in result["further"]:
        said = row["unit"] if row["value"] is None else f"{row['value']:.1f} {row['unit']}"
        foreign = cell([row["foreign"]], 2)
        lines.append(f"| {row['scenario']} | {row['peer']} | {row['what']} | {said} | {foreign} |")
    head = "| | | | | others' CPU |"
    return table("### Further", head, "|---|---|---|--:|--:|", lines)


def table(title, head, marks, lines):
    return "\n".join([title, "", head, marks, *lines]) if lines else ""
