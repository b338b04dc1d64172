"""What ``nadi hang`` tells: who makes the job hang, group by group and rank by rank."""

from dataclasses import asdict
from typing import Any

from nadi.bottlenecks.hangs.hangs import BlockedGroup, Hang
from nadi.results.declared import (
    NAME,
    NS,
    PLAIN,
    RANKS,
    WORDS,
    Column,
    Lines,
    Result,
    Rows,
    number,
)
from nadi.results.text import issue_lines, rank_ranges
from nadi.units import format_counted, format_ns

_SAYS = {
    "absent": "has not called {what}",
    "different": "is in another operation than {what}",
    "sizes": "has called {what} with other sizes or types",
    "queued": "has called {what}, but its device has not started it",
    "no dump": "left no dump; the others wait in {what}",
}

_KNOWN = number(lambda value: str(value) if value > 0 else "", "")


def _verdict(found: Hang) -> list[str]:
    """Return sentences: what makes the job hang."""
    if found.culprits:
        begin = ["Each waits for the next: a deadlock."] if found.is_circle else []
        return begin + [_sentence(found, rank, group) for rank, group in found.culprits]
    inside = [one for one in found.groups if one.finding]
    if inside:
        return [
            f"All members are in {_what(one)}, and it does not end: look at the network and the "
            "devices, not at a rank's program." if len(one.ranks) > 1 else
            f"Rank {one.ranks[0]} is in {_what(one)}, and it does not end: there is no dump of "
            "another member, which may be the cause." for one in inside
        ]  # fmt: skip
    if odd := next((issue for issue in found.issues if issue.code == "hang.numbers"), None):
        groups = format_counted(odd.count, "group")
        return [f"The dumps do not tell what hangs: the numbers of {groups} contradict each other."]
    late = next((one for one in found.ranks if one.rank == found.latest), None)
    missing = next((one.count for one in found.issues if one.code == "hang.missing-dumps"), 0)
    lines = [
        f"All that was called has completed on the ranks that left a dump; "
        f"{format_counted(missing, 'rank')} left none, and may be the cause."
        if missing
        else "No collective hangs: all that was called has completed."
    ]
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
    return f"{group.operation}{number} of group {_named(asdict(group))}"


def _named(group: dict[str, Any]) -> str:
    described = group["description"] and group["description"] != "undefined"
    return f"{group['name']} ({group['description']})" if described else group["name"]


def _culprits(found: Hang) -> list[dict[str, Any]]:
    places = {one.rank: one.place for one in found.ranks}
    return [
        {"rank": rank, "group": group.name, "finding": group.finding,
         "operation": group.operation, "number": group.number, "at": places.get(rank, "")}
        for rank, group in found.culprits
    ]  # fmt: skip


def _culprits_first(data: dict[str, Any]) -> list[int]:
    culprits, ranks = {one["rank"] for one in data["culprits"]}, data["ranks"]
    return sorted(range(len(ranks)), key=lambda i: (ranks[i]["rank"] not in culprits, i))


HANG = Result(
    kind="hang", title="What hangs", order=51,
    facts=(
        Column("verdict", get=_verdict, about="sentences: what makes the job hang"),
        Column("culprits", get=_culprits),
        Column("is_circle", about="whether each culprit waits for another one: a deadlock"),
        Column("issues", get=lambda found: [asdict(one) for one in found.issues]),
    ),
    headline=None,
    parts=(
        Lines(lambda data: data["verdict"]),
        Rows("groups", "groups: the first collective that not all members have completed",
             lambda found: found.groups, (
            Column("name", "group", NAME, "with its description", shown=_named),
            *map(Column, ("name", "description", "completed")),
            Column("ranks", "ranks", RANKS, "its members"),
            Column("completed", "last completed", PLAIN, "by all members",
                   shown=lambda row: row["completed"] if row["number"] else ""),
            Column("number", "number", _KNOWN, "of the collective, from 1"),
            Column("operation", "operation"),
            Column("finding", "finding", WORDS, "what the culprits have done instead"),
            Column("culprits", "culprits", RANKS, "ranks for which the others wait"),
            Column("waiting", "waiting", RANKS, "ranks that wait in it"),
        )),
        Rows("ranks", "ranks: the first operation that has not completed, else the last one",
             lambda found: found.ranks, (
            Column("rank", "rank", PLAIN),
            Column("group", "group"),
            Column("number", "number", PLAIN, "of the operation in its group"),
            Column("operation", "operation"),
            Column("state", "state", WORDS, "scheduled, started or completed"),
            Column("times_last", "times last", PLAIN, "collectives that it entered last"),
            Column("late_ns", "late by", NS, "how much later than the others, in all"),
            Column("place", "at", NAME, "where the program called it"),
        ), pick=_culprits_first),
        Lines(lambda data: issue_lines(data["issues"])),
    ),
)  # fmt: skip
"""What ``nadi hang`` tells."""
