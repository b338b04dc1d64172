"""Random programs for the machine, and what a machine is calibrated by before each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from tests.reference.machine import Do, Program, Rank, Thread

__all__ = [
    "MAIN",
    "OTHER",
    "Action",
    "Description",
    "calibration",
    "descriptions",
    "of_all_ranks",
    "program_of",
]

MAIN, OTHER = 1, 2  # threads
_STREAMS = (7, 13, 20)
_STREAM_OF_GROUP = (40, 41)
_NUM_LAUNCHES, _NUM_WAITS = 20, 8  # as many as estimates of what is typical want
_MOST_NS_OUTSIDE = 800  # of operators, so that no thread seems to wait for another
_SMALLEST_NS = 8  # which may be halved
_BACK = 1_000  # added to the number of a hand-over
_BACKWARD = "autograd::engine::evaluate_function: "
_COLLECTIVES = ("all_reduce", "all_reduce_here")
_TRANSFER_STREAMS = (50, 51)
_WAITS = ("synchronize", "synchronize_stream", "synchronize_event")


@dataclass(frozen=True)
class Action:
    """A statement of a random program; figures are small and mean what the statement makes them."""

    what: str
    stream: int = 0
    host: int = 1
    device: int = 1
    number: int = 0


Description = tuple[tuple[tuple[Action, ...], ...], ...]
"""The actions of each thread of each rank."""


def _actions(what: Sequence[str]) -> st.SearchStrategy[Action]:
    return st.builds(
        Action, st.sampled_from(what), st.integers(0, len(_STREAMS) - 1), st.integers(1, 60),
        st.integers(1, 60), st.integers(0, 1),
    )  # fmt: skip


@st.composite
def descriptions(
    draw: st.DrawFn, what: Sequence[str], *, together: Sequence[str] = (), num_ranks: int = 1,
    num_threads: int = 1,
) -> Description:  # fmt: skip
    """Draw actions ``what``; those of ``together`` all ranks do, in one order."""
    common = draw(st.lists(_actions(together), min_size=1, max_size=5)) if together else []
    ranks = []
    for _ in range(num_ranks):
        todo: list[Action] = []
        for action in common:
            todo += [*draw(_lists(what, 2)), action]
        todo += draw(_lists(what, 8))
        others = [tuple(draw(_lists(what, 8))) for _ in range(num_threads - 1)]
        ranks.append((tuple(todo), *others))
    return tuple(ranks)


def _lists(what: Sequence[str], size: int) -> st.SearchStrategy[list[Action]]:
    """Draw so many actions that they meet."""
    return st.lists(_actions(what), min_size=size, max_size=3 * size)


def of_all_ranks(description: Description) -> Description:
    """Let every collective be one of all ranks."""
    return tuple(
        tuple(
            tuple(
                replace(action, number=0) if action.what == "all_reduce" else action
                for action in thread
            )
            for thread in rank
        )
        for rank in description
    )


def program_of(description: Description) -> Program:
    """Make a program of the actions, each as far as it can be where it is.

    The main thread of each rank first shows the overheads of what the program does. Group
    0 is all ranks, group 1 all but rank 1.
    """
    what = {action.what for rank in description for thread in rank for action in thread}
    before = calibration(
        [name for name in _WAITS if name in what],
        crosses=bool(what & {"cross", "wait"}),
        stages="stage" in what,
        fills="fill" in what,
    )
    all_ranks = range(len(description))
    groups = {0: tuple(all_ranks), 1: tuple(r for r in all_ranks if r != 1)}
    ranks = []
    for r, rank in enumerate(description):
        of_rank = [[a for a in thread if a.what not in _COLLECTIVES or r in groups[a.number]]
                   for thread in rank]  # fmt: skip
        if any(action.what == "hand_over" for thread in of_rank for action in thread):
            of_rank[:2] = _with_episodes(of_rank[0], of_rank[1])
        threads = [_thread(MAIN, r, of_rank[0], before)]
        threads += [_thread(OTHER + k, r, todo, []) for k, todo in enumerate(of_rank[1:])]
        ranks.append(Rank(tuple(threads)))
    return Program(tuple(ranks), groups)


def _with_episodes(main: list[Action], other: list[Action]) -> tuple[list[Action], list[Action]]:
    """Let the other thread do its actions for the main one, which waits for each part of them."""
    main = [*main, Action("hand_over")]
    count = sum(action.what == "hand_over" for action in main)
    other = [action for action in other if action.what != "hand_over"]
    numbers = iter(range(count))
    main = [replace(a, number=next(numbers)) if a.what == "hand_over" else a for a in main]
    parts = []
    for number in range(count):
        part = other[number::count]
        parts += [
            Action("begin_episode", number=number),
            *part,
            Action("end_episode", number=number),
        ]
    return [*main, Action("open")], parts  # a wait is seen by what comes after it


def _thread(number: int, rank: int, actions: Sequence[Action], before: Sequence[Do]) -> Thread:
    todo = list(before)
    kinds: list[str] = []  # of what is open
    is_worker = any(action.what == "begin_episode" for action in actions)
    for action in actions:
        for statement in _statements(action, kinds, rank, is_worker=is_worker):
            todo += [_spend(action.host, kinds), statement]
            if statement.what in ("open", "annotate"):
                kinds.append(statement.what)
            elif statement.what == "close":
                kinds.pop()
    while kinds:
        todo += [_spend(1, kinds), Do("close")]
        kinds.pop()
    begin = 0 if number == MAIN else 1_000 * number + 1
    return Thread(number, begin, tuple(_with_names(todo)))


def _spend(amount: int, kinds: Sequence[str]) -> Do:
    in_operator = bool(kinds) and kinds[-1] == "open"
    if in_operator:
        return Do("spend", 200 * amount)
    return Do("spend", min(_SMALLEST_NS * amount, _MOST_NS_OUTSIDE))


def _statements(action: Action, kinds: Sequence[str], rank: int, *, is_worker: bool) -> list[Do]:
    """Give the statements of an action: none if it cannot be here."""
    stream, device = _STREAMS[action.stream], 1_000 * action.device
    call, number = 40 * action.host, action.number
    match action.what:
        case "open" | "annotate":
            return [Do(action.what)]
        case "hand_over":  # by no operator
            close = [Do("close") for _ in kinds]
            return [*close, Do("tell", number=number), Do("hear", number=number + _BACK)]
        case "begin_episode":
            return [Do("hear", number=number), Do("open", name=_BACKWARD)]
        case "end_episode":
            return [*(Do("close") for _ in kinds), Do("tell", number=number + _BACK)]
        case "close":
            return [Do("close")] if len(kinds) > is_worker else []
        case "launch_graph":
            works = tuple(1_000 * (action.device + k) for k in range(1 + action.host % 4))
            return [Do("launch_graph", call, stream=stream, work=works)]
        case "all_reduce" | "all_reduce_here":  # on the stream of its group, or of the program
            stream = _STREAM_OF_GROUP[number] if action.what == "all_reduce" else stream
            return [Do("all_reduce", call, stream=stream, work=(device,), number=number)]
        case "transfer":
            return _transfer(action, rank, call)
        case "fill":  # the queue of the stream, if it is short
            return [Do("launch", 4_000, stream=stream, work=(1_000 * action.device,))] * 4
        case "stage":  # it outlives its call
            return [Do("stage", stream=stream, work=(20_000 + device,))]
        case "launch" | "memset" | "copy" | "fetch":
            return [Do(action.what, call, stream=stream, work=(device,))]
        case "cross":  # to another stream
            other = _STREAMS[(action.stream + 1 + number) % len(_STREAMS)]
            return [
                Do("record", call, stream=stream, number=number),
                Do("wait", call, stream=other, number=number),
                Do("launch", call, stream=other, work=(device,)),
            ]
        case _:
            return [Do(action.what, call, stream=stream, number=number)]


def _transfer(action: Action, rank: int, call: int) -> list[Do]:
    """Send from one of the first two ranks to the other; other ranks have no part in it."""
    ends = (action.number, 1 - action.number)
    if rank not in ends:
        return []
    what, peer = ("send", ends[1]) if rank == ends[0] else ("receive", ends[0])
    stream = _TRANSFER_STREAMS[action.number]
    return [Do(what, call, stream=stream, work=(1_000 * action.device,), number=peer)]


def _with_names(todo: Sequence[Do]) -> list[Do]:
    """Give operators names that stand once on their thread."""
    return [
        Do(do.what, do.time, f"{do.name}op{index}", do.stream, do.work, do.number)
        if do.what in ("open", "annotate") else do
        for index, do in enumerate(todo)
    ]  # fmt: skip


def calibration(
    waits: Sequence[str], *, crosses: bool = False, stages: bool = False, fills: bool = False
) -> list[Do]:
    """Show every overhead often enough to be estimated exactly, and end with an idle device."""
    spend, until_idle = Do("spend", 4_000), Do("spend", 40_000)
    launch = Do("launch", 4_000, work=(8_000,))
    long = Do("launch", 4_000, work=(80_000,))
    todo = [Do("open")]
    for _ in range(_NUM_LAUNCHES):
        todo += [spend, launch, until_idle, Do("fetch", work=(8_000,)), until_idle]
    for _ in range(_NUM_WAITS):
        for wait in waits:  # for something, and for nothing
            todo += [long, spend, Do("record", 400, number=9), Do(wait, 400, number=9)]
            todo += [until_idle, Do(wait, 400, number=9)]
    todo += [Do("stage", work=(30_000,)), until_idle] * (_NUM_LAUNCHES * stages)
    for _ in range(_NUM_WAITS * fills):
        todo += [*[spend, long] * 4, *[until_idle] * 8]
    for _ in range(_NUM_WAITS * crosses):
        todo += [long, spend, Do("record", 400, number=9), Do("wait", 400, stream=13, number=9)]
        todo += [Do("launch", 400, stream=13, work=(8_000,)), until_idle, until_idle, until_idle]
    # queued in good time
    todo += [spend, long, spend, launch]
    return [*todo, Do("spend", 120_000), Do("close")]
