"""Jobs as programs of messages: written for other simulators, and timed in a LogGP model."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from nadi.errors import InputError, Parameter, checked
from nadi.files.goal import Action, MessageProgram, is_goal, read_goal
from nadi.recordings.jobs import read_job
from nadi.simulation.engine.codes import Slot
from nadi.simulation.loggp.loggp import (
    LogGP,
    LogGPTimes,
    MemberMessages,
    loggp_times,
    member_messages,
)
from nadi.simulation.work.ordered_lanes import in_lanes, numbers_in_groups
from nadi.simulation.work.program import Program, program_of
from nadi.simulation.work.recorded_work import nodes_of_job
from nadi.systems.library import read_system_file
from nadi.trace.arrays import Ints
from nadi.trace.collectives import TO_ROOT
from nadi.trace.issues import IssueLog
from nadi.trace.rows import number_rows
from nadi.trace.schema import COMM_TYPES, NODE_KINDS
from nadi.trace.trace import Job, Trace


def read_messages(
    path: Path | str,
    groups: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    *,
    system: str = "",
    log: IssueLog | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> MessageProgram:
    """Read a GOAL file, or a job, whose collectives are taken apart into messages.

    Parameters
    ----------
    path
        A GOAL file, or what :func:`nadi.recordings.read_job` accepts.
    groups
        Ranks of process groups by name, for traces that do not state them.
    system
        A system whose device prices computations without a time: a name or a file.
    log
        Takes what is left out.
    progress
        Called with a line of text before each longer stage.

    Raises
    ------
    InputError, UsageError
        If it cannot be read, or its traces contradict each other.
    """
    if is_goal(path):
        return read_goal(path)
    job = read_job(path, progress)
    if system:
        from nadi.systems.prices.priced_traces import price_job

        num_ranks = len(job) if isinstance(job, list) else len(job.traces)
        job = price_job(job, read_system_file(system).fit(num_ranks))[0]  # type: ignore[assignment]
    progress("taking collectives apart")
    return messages_of_job(job, groups, log)


def simulate_messages(
    path: Path | str,
    machine: LogGP,
    groups: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    *,
    system: str = "",
    log: IssueLog | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> LogGPTimes:
    """Predict when each rank of a program of messages finishes in a LogGP model.

    Parameters and errors as of :func:`read_messages`; ``machine`` has the model's parameters.

    Raises
    ------
    PairError
        If an operation never ends; the message names it.
    """
    program = read_messages(path, groups, system=system, log=log, progress=progress)
    progress("simulating")
    return loggp_times(program, machine)


_COMPUTES, _SENDS, _RECEIVES, _COLLECTIVE = (
    NODE_KINDS.index(name) for name in ("COMP", "COMM_SEND", "COMM_RECV", "COMM_COLL")
)
_ACCESSES = [NODE_KINDS.index(name) for name in ("MEM_LOAD", "MEM_STORE")]
_BARRIER = COMM_TYPES.index("barrier")
_TO_ROOT = [COMM_TYPES.index(name) for name in TO_ROOT]
_COMMUNICATION = 0  # the processor that communicates


class _Parts(NamedTuple):
    """The operations that nodes become; int64, shape (operations,) but for ``first``."""

    first: Ints  # (nodes + 1,): where those of each node begin
    action: Ints
    size: Ints
    peer: Ints
    tag: Ints


@checked
def messages_of_job(
    job: Job | Sequence[Trace],
    groups: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    log: IssueLog | None = None,
) -> MessageProgram:
    """Take a job apart into computations and messages. O(messages + dependencies).

    Work on threads and streams keeps its order. Communication occupies processor 0 of a rank, and
    each thread or stream one of its own from 1 on. Collectives become the messages of one
    algorithm each (:mod:`nadi.simulation.loggp.loggp`).

    Parameters
    ----------
    job
        A trace per rank, in order of rank, or a job; recordings are converted as
        :func:`nadi.simulate` does.
    groups
        Ranks of process groups by name, which override those that the traces state.
    log
        Takes what is left out: times that are not stated, accesses to remote memory.

    Raises
    ------
    InputError
        If the traces contradict each other, or the ranks of a group are not stated.
    """
    if isinstance(job, Job) and job.rank_groups is not None:
        traces = [job.own_trace(rank) for rank in range(len(job.traces))]
    else:
        played = frozenset(COMM_TYPES)
        traces = list(nodes_of_job(job, played, at_once=True)[0])
    if not traces:
        raise InputError("job", "it has no traces", "give one trace per rank")
    program = in_lanes(program_of(traces))
    _report(program, log or IssueLog())
    templates, which = _templates(program, groups)
    parts = _parts(program, templates, which)
    waiting, awaited = _dependencies(program, parts, templates, which)
    of_rank = parts.first[program.first]
    cpu = np.repeat(_processors(program), np.diff(parts.first))
    zeros = np.zeros(parts.action.size, dtype=np.int64)
    return MessageProgram(
        of_rank, parts.action, parts.size, parts.peer, parts.tag, cpu, zeros, waiting, awaited,
        np.zeros(waiting.size, dtype=np.bool_),
    )  # fmt: skip


def _report(program: Program, log: IssueLog) -> None:
    unknown = (program.kind == _COMPUTES) & (program.duration < 0)
    log.add(
        "messages.no-time", "warning", int(unknown.sum()),
        "computations state no time: they take none",
        "simulate them on a system, which prices them",
    )  # fmt: skip
    accesses = np.isin(program.kind, _ACCESSES)
    log.add(
        "messages.memory", "warning", int(accesses.sum()),
        "accesses to remote memory take no time: there is none in a program of messages",
    )  # fmt: skip


def _processors(program: Program) -> Ints:
    """Assign numbers to the processors of each rank: communication, then threads and streams."""
    assert program.lane is not None
    communicates = np.isin(program.kind, [_SENDS, _RECEIVES, _COLLECTIVE])
    # nodes without a thread or stream run on one for the host and one for the device
    beside = np.where(program.slot == Slot.CPU, -2, -1)
    place = np.where(program.lane >= 0, program.lane, beside)
    key, first = number_rows([program.rank, place])
    order = np.lexsort((place[first], program.rank[first]))
    ranks = program.rank[first][order]
    begins = np.searchsorted(ranks, np.arange(program.num_ranks))
    number = np.empty(first.size, dtype=np.int64)
    number[order] = 1 + np.arange(first.size) - begins[ranks]
    return np.where(communicates, _COMMUNICATION, number[key])


def _templates(
    program: Program, groups: Mapping[str, tuple[int, ...]]
) -> tuple[list[tuple[MemberMessages, Ints]], Ints]:
    """Return what collectives become, with the members' ranks; and which each node becomes.

    -1 for nodes that become one operation.
    """
    which = np.full(program.num_nodes, -1, dtype=np.int64)
    chosen = np.flatnonzero(program.kind == _COLLECTIVE)
    if not chosen.size:
        return [], which
    root = np.where(np.isin(program.comm_type, _TO_ROOT), program.dst, program.src)
    kinds, first = number_rows([
        program.comm_type[chosen], program.group[chosen], program.rank[chosen], root[chosen],
    ])  # fmt: skip
    which[chosen] = kinds
    everybody = np.arange(program.num_ranks)
    found = []
    for node in chosen[first].tolist():
        code, rank = int(program.group[node]), int(program.rank[node])
        members = everybody if code < 0 else _members(program, groups, code)
        if not (members == rank).any():
            name = program.group_names[code]
            raise InputError(
                program.describe(node), f"the ranks of group {name!r} are unknown, or not all",
                ["list them in ", Parameter("comm_group")],
            )  # fmt: skip
        name = COMM_TYPES[program.comm_type[node]]
        member = int(np.argmax(members == rank))
        # position 0 if no root is stated
        first_of = int(np.argmax(members == root[node]))
        found.append((member_messages(name, members.size, member, first_of), members))
    return found, which


def _members(program: Program, groups: Mapping[str, tuple[int, ...]], code: int) -> Ints:
    stated = groups.get(program.group_names[code]) or program.group_ranks[code]
    members = np.array(stated, dtype=np.int64)
    wrong = (members < 0) | (members >= program.num_ranks)
    if wrong.any() or np.unique(members).size < members.size:
        raise InputError(
            f"group {program.group_names[code]!r}",
            f"its ranks must be distinct and from 0 to {program.num_ranks - 1}",
            ["correct ", Parameter("comm_group"), ", or give the traces of all ranks"],
        )  # fmt: skip
    return members


def _parts(program: Program, templates: list[tuple[MemberMessages, Ints]], which: Ints) -> _Parts:
    lengths = np.array([*(t.action.size for t, _ in templates), 1], dtype=np.int64)
    first = np.append(0, np.cumsum(lengths[which]))  # the last length is that of -1
    action, size, peer, tag = (np.full(first[-1], value, dtype=np.int64)
                               for value in (Action.COMPUTE, 0, -1, 0))  # fmt: skip
    single = which < 0
    at, kind = first[:-1][single], program.kind[single]
    action[at] = np.select([kind == _SENDS, kind == _RECEIVES], [Action.SEND, Action.RECEIVE], 2)
    sizes = np.where(kind == _COMPUTES, program.duration[single], 0)
    messages = (kind == _SENDS) | (kind == _RECEIVES)
    size[at] = np.maximum(np.where(messages, program.comm_bytes[single], sizes), 0)
    ends = np.where(kind == _SENDS, program.dst[single], program.src[single])
    peer[at] = np.where(messages, ends, -1)
    tag[at] = np.where(messages, np.maximum(program.tag[single], 0), 0)
    _check_peers(program, np.flatnonzero(single)[messages], ends[messages])
    of_collectives = _tags(program, 1 + int(tag.max(initial=0)))
    for k, (template, members) in enumerate(templates):
        nodes = np.flatnonzero(which == k)
        places = first[nodes][:, None] + np.arange(template.action.size)
        num_bytes = np.maximum(program.comm_bytes[nodes], 0)
        num_bytes[program.comm_type[nodes] == _BARRIER] = 1
        action[places], peer[places] = template.action, members[template.peer]
        size[places] = template.shares * -(-num_bytes[:, None] // template.parts)
        tag[places] = of_collectives[nodes][:, None]
    return _Parts(first, action, size, peer, tag)


def _check_peers(program: Program, nodes: Ints, peers: Ints) -> None:
    wrong = (peers < 0) | (peers >= program.num_ranks)
    if wrong.any():
        raise InputError(
            program.describe(int(nodes[np.argmax(wrong)])),
            f"its other rank is {int(peers[wrong][0])}, but the job has {program.num_ranks}",
            "check that the traces of all ranks are given",
        )  # fmt: skip


def _tags(program: Program, first: int) -> Ints:
    """Give the collectives of a group one tag each, which no other message has."""
    tag = np.zeros(program.num_nodes, dtype=np.int64)
    chosen = np.flatnonzero(program.kind == _COLLECTIVE)
    if chosen.size:
        group = program.group[chosen] + 1
        key, _ = number_rows([group, numbers_in_groups(program, group, chosen)])
        tag[chosen] = first + key
    return tag


def _dependencies(
    program: Program, parts: _Parts, templates: list[tuple[MemberMessages, Ints]], which: Ints
) -> tuple[Ints, Ints]:
    """Let what nodes begin with wait for what those before them end with."""
    begins = [np.flatnonzero(t.awaited < 0) for t, _ in templates]
    begin_first, begin = _listed(begins, which, parts.first)
    end_first, end = _listed([t.lasts for t, _ in templates], which, parts.first)
    src = np.repeat(np.arange(program.num_nodes), np.diff(program.first_child))
    dst = program.children
    ends, starts = np.diff(end_first)[src], np.diff(begin_first)[dst]
    pairs = ends * starts
    edge = np.repeat(np.arange(src.size), pairs)
    number = np.arange(edge.size) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    awaited = [end[end_first[src[edge]] + number // starts[edge]]]
    waiting = [begin[begin_first[dst[edge]] + number % starts[edge]]]
    for k, (template, _) in enumerate(templates):
        later = np.flatnonzero(template.awaited >= 0)
        base = parts.first[np.flatnonzero(which == k)][:, None]
        waiting.append((base + later).ravel())
        awaited.append((base + template.awaited[later]).ravel())
    return np.concatenate(waiting), np.concatenate(awaited)


def _listed(places: list[Ints], which: Ints, first: Ints) -> tuple[Ints, Ints]:
    """List some operations of each node, as those at these places of its template."""
    lists = [*places, np.zeros(1, dtype=np.int64)]  # of -1: its only one
    start = np.append(0, np.cumsum([one.size for one in lists]))
    counts = np.diff(start)[which]
    listed = np.append(0, np.cumsum(counts))
    entry = np.arange(listed[-1]) - np.repeat(listed[:-1] - start[:-1][which], counts)
    return listed, np.repeat(first[:-1], counts) + np.concatenate(lists)[entry]
