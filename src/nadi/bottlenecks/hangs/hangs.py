"""Find the rank that makes a job hang: absent, late, or in another collective than the others.

Collectives of a group match by their number in it. Of each group the first number that not all
members have completed says who waits and for whom. A rank that is absent from a group may itself
wait in another one: such waits are followed to the ranks that wait for nobody.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from nadi.files.flight_recorder import Dump, Entry, read_dumps
from nadi.trace.issues import Issue

_ALL = "default_pg"  # the description of the group of all ranks
_END = "coalesced"
# each member gives as much as the others
_EQUAL_SIZES = frozenset(
    ("all_reduce", "broadcast", "reduce", "_all_gather_base", "_reduce_scatter_base", "barrier")
)


# none of these ends before all members have called it
_MEETS = re.compile(r"_?(?:all_?reduce|all_?gather|all_?to_?all|reduce_scatter|barrier)")


@dataclass(frozen=True)
class BlockedGroup:
    """A group, and what stops it.

    Attributes
    ----------
    name, description, ranks
        The group.
    completed
        The number of the last collective that all members have completed; 0 if there is none.
    number, operation
        The first that they have not; -1 and empty if all that was enqueued is completed.
    finding
        ``absent``: the culprits have not enqueued it. ``different``: they are in another operation.
        ``sizes``: with other sizes or types. ``queued``: theirs has not started, that of others
        has. ``no dump``: they left none. ``inside``: all are in it, so that no member is to blame.
        Empty: nothing stops it.
    culprits, waiting
        Ranks; those that wait for the culprits.
    """

    name: str
    description: str
    ranks: tuple[int, ...]
    completed: int
    number: int = -1
    operation: str = ""
    finding: str = ""
    culprits: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()


@dataclass(frozen=True)
class RankPlace:
    """Where a rank is: its first operation that has not completed, else its last one."""

    rank: int
    group: str
    number: int
    operation: str
    state: str
    place: str
    times_last: int
    late_ns: int


@dataclass(frozen=True)
class Hang:
    """What dumps say of a job.

    Attributes
    ----------
    groups
        All groups, those that are stopped first.
    culprits
        The ranks that wait for nobody, and for whom others wait, with the group that says so.
    is_circle
        Whether each culprit waits for another one: a deadlock.
    ranks
        Where each rank is.
    latest
        The rank that was last most often and longest, when nothing hangs; -1 if there is none.
    issues
        What the dumps do not tell.
    """

    groups: tuple[BlockedGroup, ...]
    culprits: tuple[tuple[int, BlockedGroup], ...]
    is_circle: bool
    ranks: tuple[RankPlace, ...]
    latest: int
    issues: tuple[Issue, ...]


def find_hang(*paths: Path | str) -> Hang:
    """Find which rank makes a job hang.

    Parameters
    ----------
    paths
        Dumps of PyTorch's flight recorder, one for each rank, or folders of them.

    Raises
    ------
    InputError
        If one cannot be read, or two have the same rank.
    """
    dumps, ignored = read_dumps(paths)
    return hang_of_dumps(dumps, ignored)


def hang_of_dumps(dumps: Sequence[Dump], ignored: Sequence[str] = ()) -> Hang:
    """Find which rank makes a job hang; O(entries)."""
    dumps, odd = _numbered_alike(dumps)
    by_group: dict[str, dict[int, list[Entry]]] = defaultdict(dict)
    for dump in dumps:
        for entry in dump.entries:
            by_group[entry.group].setdefault(dump.rank, []).append(entry)
    groups = []
    for name, entries in by_group.items():
        members = _members(name, entries, dumps)
        if name in odd:
            description = next(e.description for some in entries.values() for e in some)
            groups.append(BlockedGroup(name, description, members, 0))
        else:
            groups.append(_collectives(name, members, entries, dumps))
        groups += _messages(name, members, entries, dumps)
    groups.sort(key=lambda one: (not one.finding, one.name))
    culprits, is_circle = _roots([one for one in groups if one.culprits])
    late = _lateness(by_group)
    latest = max(late, key=lambda rank: (late[rank][1], late[rank][0]), default=-1)
    return Hang(
        groups=tuple(groups),
        culprits=culprits,
        is_circle=is_circle,
        ranks=tuple(_place_of(dump, late.get(dump.rank, (0, 0))) for dump in dumps),
        latest=latest,
        issues=_issues(dumps, groups, ignored, odd),
    )


def _numbered_alike(dumps: Sequence[Dump]) -> tuple[list[Dump], set[str]]:
    """Give the collectives of each group the same numbers on all ranks.

    Where a rank has completed what another has not called, they number differently. If all have
    what they enqueued from the first on, their first numbers are taken for the same.

    - Returns: The dumps, and the names of groups whose numbers contradict each other all the same.
    """
    odd = {name for dump in dumps for entry in dump.entries if (name := entry.group)}
    odd = {name for name in odd if _contradict(name, dumps)}
    if odd and all(dump.entries and dump.entries[0].record_id == 0 for dump in dumps):
        dumps = [_from_one(dump, odd) for dump in dumps]
        odd = {name for name in odd if _contradict(name, dumps)}
    return list(dumps), odd


def _contradict(name: str, dumps: Sequence[Dump]) -> bool:
    """Return whether a rank has completed a collective of a group that another has not called."""
    users = [dump for dump in dumps if dump.rank in dump.members.get(name, (dump.rank,))]
    called, ended = [], [0]
    for dump in users:
        own = [e for e in dump.entries if e.group == name and not e.is_p2p]
        if own or name in dump.members:
            called.append(max([dump.enqueued.get(name, 0), *(e.number for e in own)]))
        ended += [e.number for e in own if e.is_done and _MEETS.match(e.operation)]
    return max(ended) > min(called, default=0)


def _from_one(dump: Dump, groups: set[str]) -> Dump:
    """Let the collectives of some groups count from 1."""
    first: dict[str, int] = {}
    for entry in dump.entries:
        if entry.group in groups and not entry.is_p2p:
            first.setdefault(entry.group, entry.number)
    before = {name: number - 1 for name, number in first.items()}
    entries = [
        msgspec.structs.replace(e, collective_seq_id=e.collective_seq_id - before[e.group])
        if e.group in before and not e.is_p2p
        else e
        for e in dump.entries
    ]
    enqueued, completed = (
        {name: number - before.get(name, 0) for name, number in of_group.items()}
        for of_group in (dump.enqueued, dump.completed)
    )
    return replace(dump, entries=entries, enqueued=enqueued, completed=completed)


def _members(
    name: str, entries: dict[int, list[Entry]], dumps: Sequence[Dump]
) -> tuple[int, ...]:  # fmt: skip
    """Return the ranks of a group: as stated, else those that used it; all of the default one."""
    for dump in dumps:
        if name in dump.members:
            return dump.members[name]
    is_all = any(entry.description == _ALL for some in entries.values() for entry in some)
    return tuple(dump.rank for dump in dumps) if is_all else tuple(sorted(entries))


def _collectives(
    name: str, members: tuple[int, ...], entries: dict[int, list[Entry]], dumps: Sequence[Dump]
) -> BlockedGroup:
    """Return the first collective of a group that not all members have completed, and why."""
    dumped = {dump.rank: dump for dump in dumps if dump.rank in members}
    numbered: dict[int, dict[int, list[Entry]]] = {rank: defaultdict(list) for rank in dumped}
    for rank in dumped:
        for entry in entries.get(rank, ()):
            if not entry.is_p2p and entry.number > 0:
                numbered[rank][entry.number].append(entry)
    last = {
        rank: max(dump.enqueued.get(name, 0), *numbered[rank], 0) for rank, dump in dumped.items()
    }
    done = {
        rank: max(dump.completed.get(name, 0), _last_done(numbered[rank]))
        for rank, dump in dumped.items()
    }
    description = next((e.description for some in entries.values() for e in some), "")
    completed = min(done.values(), default=0)
    found = BlockedGroup(name, description, members, max(completed, 0))
    first = found.completed + 1
    if max(last.values(), default=0) < first:
        return found
    later = {number for of_rank in numbered.values() for number in of_rank if number > first}
    for number in (first, *sorted(later)):
        there = {rank: some for rank in dumped if (some := numbered[rank].get(number))}
        finding, culprits = _finding(members, last, number, there)
        # one that a member has completed is over: others have not noticed it yet
        if finding != "inside" or max(done.values()) < number:
            break
    operation = _most_common(_operations(some) for some in there.values())
    waiting = [rank for rank in there if rank not in culprits and done[rank] < number]
    return BlockedGroup(
        name, description, members, found.completed, number, operation, finding,
        tuple(culprits), tuple(waiting),
    )  # fmt: skip


def _last_done(numbered: dict[int, list[Entry]]) -> int:
    """Return the last number before the first that has not completed."""
    last = 0
    for number in sorted(numbered):
        if any(not entry.is_done and entry.operation != _END for entry in numbered[number]):
            break
        last = number
    return last


def _finding(
    members: tuple[int, ...], last: dict[int, int], number: int,
    there: dict[int, list[Entry]],
) -> tuple[str, list[int]]:  # fmt: skip
    """Return what stops a collective, and the ranks that do."""
    operations = {rank: _operations(some) for rank, some in there.items()}
    if culprits := _minority(operations):
        return "different", culprits
    if absent := [rank for rank, latest in last.items() if latest < number]:
        return "absent", absent
    if without := [rank for rank in members if rank not in last]:
        return "no dump", without
    if set(operations.values()) <= _EQUAL_SIZES:
        sizes = {rank: " ".join(entry.sizes for entry in some) for rank, some in there.items()}
        if culprits := _minority(sizes):
            return "sizes", culprits
    started = {rank for rank, some in there.items() if any(e.state == "started" for e in some)}
    queued = [rank for rank, some in there.items()
              if rank not in started and not all(entry.is_done for entry in some)]  # fmt: skip
    if started and queued:
        return "queued", queued
    return "inside", []


def _operations(entries: Iterable[Entry]) -> str:
    """Return what a rank does at one number: several operations if they are one group of calls."""
    return ", ".join(entry.operation for entry in entries if entry.operation != _END)


def _minority(values: dict[int, str]) -> list[int]:
    """Return the ranks that differ from most; of two equal halves those without the lowest rank."""
    counts = Counter(values.values())
    if len(counts) < 2:
        return []
    usual = max(counts, key=lambda one: (counts[one], -min(r for r in values if values[r] == one)))
    return [rank for rank, value in values.items() if value != usual]


def _most_common(values: Iterable[str]) -> str:
    counts = Counter(values)
    return max(counts, key=counts.__getitem__, default="")


def _messages(
    name: str, members: tuple[int, ...], entries: dict[int, list[Entry]], dumps: Sequence[Dump]
) -> list[BlockedGroup]:
    """Return the sends and receives that wait for a partner, which has not called its own."""
    waiting: Counter[tuple[int, int, int]] = Counter()
    description = ""
    for rank, some in entries.items():
        for entry in some:
            pair = entry.peers
            if entry.is_done or min(pair) < 0 or max(pair) >= len(members):
                continue
            description = entry.description
            waiting[rank, members[pair[0]], members[pair[1]]] += 1
    found = []
    dumped = {dump.rank for dump in dumps}
    for (rank, source, dest), count in sorted(waiting.items()):
        partner = dest if rank == source else source
        if partner == rank or waiting[partner, source, dest] >= count:
            continue
        found.append(BlockedGroup(
            name, description, members, 0, 0, f"{'send' if rank == source else 'recv'} "
            f"{source}->{dest}", "absent" if partner in dumped else "no dump",
            (partner,), (rank,),
        ))  # fmt: skip
    return found


def _roots(
    blocked: Sequence[BlockedGroup],
) -> tuple[tuple[tuple[int, BlockedGroup], ...], bool]:
    """Follow waits to the ranks that wait for nobody; if there are none, return a circle."""
    waits_for: dict[int, set[int]] = defaultdict(set)
    of = {}
    for group in blocked:
        for rank in group.waiting:
            waits_for[rank] |= set(group.culprits) - {rank}
        for rank in group.culprits:
            if rank not in of or group.finding == "different":
                of[rank] = group
    # one that is in another operation is at fault, even if it waits there
    at_fault = {rank for rank, group in of.items() if group.finding in ("different", "sizes")}
    roots = [rank for rank in sorted(of) if rank in at_fault or not waits_for[rank]]
    if roots or not of:
        return tuple((rank, of[rank]) for rank in roots), False
    rank, seen = min(of), []
    while rank not in seen:
        seen.append(rank)
        rank = min(waits_for[rank])
    return tuple((one, of[one]) for one in seen[seen.index(rank) :]), True


def _lateness(by_group: dict[str, dict[int, list[Entry]]]) -> dict[int, tuple[int, int]]:
    """Return how often each rank was last, and how long after the one before it in all, in ns."""
    late: dict[int, tuple[int, int]] = {}
    for ranks in by_group.values():
        entered: dict[int, dict[int, int]] = defaultdict(dict)
        for rank, entries in ranks.items():
            for entry in entries:
                created = entry.time_created_ns
                if not entry.is_p2p and entry.number > 0 and created is not None and created > 0:
                    entered[entry.number].setdefault(rank, created)
        for times in entered.values():
            if len(times) < len(ranks) or len(times) < 2:
                continue
            last = max(times, key=lambda rank: (times[rank], -rank))
            others = max(time for rank, time in times.items() if rank != last)
            count, total = late.get(last, (0, 0))
            late[last] = count + 1, total + times[last] - others
    return late


def _place_of(dump: Dump, late: tuple[int, int]) -> RankPlace:
    entries = dump.entries
    at = next((one for one in entries if not one.is_done), entries[-1] if entries else None)
    if at is None:
        return RankPlace(dump.rank, "", -1, "", "", "", *late)
    state = "completed" if at.is_done else "timed out" if at.timed_out else at.state
    return RankPlace(dump.rank, at.group, at.number, at.operation, state, at.place, *late)


def _issues(
    dumps: Sequence[Dump], groups: Sequence[BlockedGroup], ignored: Sequence[str], odd: set[str]
) -> tuple[Issue, ...]:
    without_place = sum(not entry.frames for dump in dumps for entry in dump.entries)
    numbers = [[e.number for e in dump.entries if not e.is_p2p] for dump in dumps]
    clipped = sum(min(some, default=1) > 1 for some in numbers)
    members = {rank for group in groups for rank in group.ranks}
    missing = len(members - {dump.rank for dump in dumps})
    found = (
        Issue("hang.missing-dumps", "warning", missing, "ranks have no dump",
              "give the dumps of all ranks: those without one may be the cause"),
        Issue("hang.numbers", "warning", len(odd),
              "in groups a rank has completed a collective that another has not called",
              "dump all ranks at the same time; else they number collectives differently"),
        Issue("hang.no-stack", "info", without_place, "entries do not say where in the program",
              "dump with stack traces, pickled and not as JSON"),
        Issue("hang.ring", "info", clipped, "dumps begin in the middle of the job",
              "what came before is not known; TORCH_FR_BUFFER_SIZE keeps more"),
        Issue("hang.ignored", "info", len(ignored), "files of the folder are no dumps",
              "they are ignored"),
        Issue("hang.clocks", "info", 1, "times are those of each host's own clock",
              "lateness between hosts is only as exact as their clocks"),
    )  # fmt: skip
    return tuple(issue for issue in found if issue.count)
