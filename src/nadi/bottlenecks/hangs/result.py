"""What ``nadi hang`` tells: who makes the job hang, group by group and rank by rank."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console

from nadi.bottlenecks.hangs.hangs import BlockedGroup, Hang
from nadi.results.text import TOP, make_table, name_cell, print_issues, print_table, rank_ranges
from nadi.units import format_counted, format_ns, printable

__all__ = ["describe_hang", "print_hang"]

_SAYS = {
    "absent": "has not called {what}",
    "different": "is in another operation than {what}",
    "sizes": "has called {what} with other sizes or types",
    "queued": "has called {what}, but its device has not started it",
    "no dump": "left no dump; the others wait in {what}",
}


def describe_hang(found: Hang) -> dict[str, Any]:
    """Compute the JSON output; times are int ns."""
    places = {one.rank: one for one in found.ranks}
    return {
        "verdict": _verdict(found),
        "culprits": [
            {"rank": rank, "group": group.name, "finding": group.finding,
             "operation": group.operation, "number": group.number,
             "at": places[rank].place if rank in places else ""}
            for rank, group in found.culprits
        ],
        "is_circle": found.is_circle,
        "groups": [{**asdict(one), "ranks": list(one.ranks), "culprits": list(one.culprits),
                    "waiting": list(one.waiting)} for one in found.groups],
        "ranks": [asdict(one) for one in found.ranks],
        "issues": [asdict(one) for one in found.issues],
    }  # fmt: skip


def _verdict(found: Hang) -> list[str]:
    """Return sentences: what makes the job hang."""
    if found.culprits:
        begin = ["Each waits for the next: a deadlock."] if found.is_circle else []
        return begin + [_sentence(found, rank, group) for rank, group in found.culprits]
    inside = [one for one in found.groups if one.finding]
    if inside:
        return [
            f"All members are in {_what(one)}, and it does not end: look at the network and the "
            "devices, not at a rank's program." for one in inside
        ]  # fmt: skip
    late = next((one for one in found.ranks if one.rank == found.latest), None)
    lines = ["No collective hangs: all that was called has completed."]
    if late is not None and late.late_ns:
        lines.append(
            f"Rank {late.rank} is late: last in {format_counted(late.times_last, 'collective')}, "
            f"{format_ns(late.late_ns)} after the others."
        )
    return lines


def _sentence(found: Hang, rank: int, group: BlockedGroup) -> str:
    says = _SAYS[group.finding].format(what=_what(group))
    place = next((one for one in found.ranks if one.rank == rank), None)
    text = f"Rank {rank} {says}."
    if group.waiting:
        waits = "ranks {} wait" if len(group.waiting) > 1 else "rank {} waits"
        text = f"{text[:-1]}; {waits.format(rank_ranges(group.waiting))} for it."
    if place is None or not place.operation:
        return text
    if place.state != "completed":
        text += f" It is in {place.operation} number {place.number} of group {place.group}"
    else:
        text += f" Its last call was {place.operation} number {place.number} of group {place.group}"
    return text + (f", called at {place.place}." if place.place else ".")


def _what(group: BlockedGroup) -> str:
    number = f" number {group.number}" if group.number > 0 else ""
    return f"{group.operation}{number} of group {_named(group)}"


def _named(group: BlockedGroup) -> str:
    described = group.description and group.description != "undefined"
    return f"{group.name} ({group.description})" if described else group.name


def print_hang(found: Hang, console: Console) -> None:
    """Print the page of text."""
    for line in _verdict(found):
        console.print(printable(line), markup=False)
    groups = make_table(
        "groups: the first collective that not all members have completed",
        group="left", ranks="left", **{"last completed": "right"}, number="right",
        operation="left", finding="left", culprits="left", waiting="left",
    )  # fmt: skip
    for one in found.groups[:TOP]:
        groups.add_row(
            name_cell(_named(one)), rank_ranges(one.ranks),
            str(one.completed) if one.number else "", str(one.number) if one.number > 0 else "",
            name_cell(one.operation), one.finding, rank_ranges(one.culprits),
            rank_ranges(one.waiting),
        )  # fmt: skip
    print_table(groups, console)
    if len(found.groups) > TOP:
        console.print(f"... and {len(found.groups) - TOP} more (--json)")
    ranks = make_table(
        "ranks: the first operation that has not completed, else the last one",
        rank="right", group="left", number="right", operation="left", state="left",
        **{"times last": "right", "late by": "right"}, at="left",
    )  # fmt: skip
    culprits = {rank for rank, _ in found.culprits}
    shown = sorted(found.ranks, key=lambda one: (one.rank not in culprits, one.rank))
    for row in shown[:TOP]:
        ranks.add_row(
            str(row.rank), name_cell(row.group), str(row.number), name_cell(row.operation),
            row.state, str(row.times_last), format_ns(row.late_ns), name_cell(row.place),
        )  # fmt: skip
    print_table(ranks, console)
    if len(shown) > TOP:
        console.print(f"... and {len(shown) - TOP} more (--json)")
    print_issues([asdict(issue) for issue in found.issues], console)
