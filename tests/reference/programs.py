"""Random programs for the machine, and what a machine is calibrated by before each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.reference.machine import Do, Program, Rank, Thread

__all__ = ["MAIN", "OTHER", "Action", "programs", "thread_of"]

MAIN, OTHER = 1, 2  # threads
_STREAMS = (7, 13, 20)
_NUM_SAMPLES = 20  # of each overhead, as estimates of typical ones want
_MOST_NS_OUTSIDE = 800  # of operators, so that no thread seems to wait for another
_SMALLEST_NS = 8  # which may be halved


@dataclass(frozen=True)
class Action:
    """A statement of a random program; figures are small and mean what the statement makes them."""

    what: str
    stream: int = 0
    host: int = 1
    device: int = 1
    number: int = 0


def actions(what: Sequence[str]) -> st.SearchStrategy[Action]:
    return st.builds(
        Action, st.sampled_from(what), st.integers(0, len(_STREAMS) - 1), st.integers(1, 60),
        st.integers(1, 60), st.integers(0, 1),
    )  # fmt: skip


@st.composite
def programs(
    draw: st.DrawFn, what: Sequence[str], *, together: Sequence[str] = (), num_ranks: int = 1,
    num_threads: int = 1,
) -> Program:  # fmt: skip
    """Draw a program of statements ``what``; those of ``together`` all ranks do in one order."""
    common = draw(st.lists(actions(together), max_size=5)) if together else []
    ranks = []
    for _ in range(num_ranks):
        todo: list[Action] = []
        for action in common:
            todo += [*draw(st.lists(actions(what), max_size=6)), action]
        todo += draw(st.lists(actions(what), min_size=1, max_size=16))
        threads = [thread_of(MAIN, todo)]
        for number in range(OTHER, OTHER + num_threads - 1):
            others = draw(st.lists(actions(what), min_size=1, max_size=10))
            threads.append(thread_of(number, others))
        ranks.append(Rank(tuple(threads)))
    return Program(tuple(ranks), {0: tuple(range(num_ranks))})


def thread_of(number: int, actions: Sequence[Action], *, calibrated: bool = True) -> Thread:
    """Make a thread of actions, which open and close operators as they can."""
    todo = list(_calibration()) if number == MAIN and calibrated else []
    kinds: list[str] = []  # of what is open
    for action in actions:
        statement = _statement(action, kinds)
        if statement is not None:
            todo += [_spend(action.host, kinds), statement]
            if action.what in ("open", "annotate"):
                kinds.append(action.what)
            elif action.what == "close":
                kinds.pop()
    while kinds:
        todo += [_spend(1, kinds), Do("close")]
        kinds.pop()
    begin = 0 if number == MAIN else 1_000 * number + 1
    return Thread(number, begin, tuple(_with_names(todo)))


def _spend(amount: int, kinds: Sequence[str]) -> Do:
    in_operator = bool(kinds) and kinds[-1] == "open"
    unit = 200 if in_operator else _SMALLEST_NS
    return Do("spend", min(unit * amount, 60 * 200 if in_operator else _MOST_NS_OUTSIDE))


def _statement(action: Action, kinds: Sequence[str]) -> Do | None:
    """Give the statement of an action, or None if it cannot be here."""
    stream, device = _STREAMS[action.stream], 1_000 * action.device
    call = 40 * action.host
    match action.what:
        case "open" | "annotate":
            return Do(action.what)
        case "close":
            return Do("close") if kinds else None
        case "launch_graph":
            works = tuple(1_000 * (action.device + k) for k in range(1 + action.host % 4))
            return Do("launch_graph", call, stream=stream, work=works)
        case "launch" | "memset" | "copy" | "fetch" | "all_reduce":
            return Do(action.what, call, stream=stream, work=(device,), number=action.number)
        case _:
            return Do(action.what, call, stream=stream, number=action.number)


def _with_names(todo: Sequence[Do]) -> list[Do]:
    """Give operators names that stand once on their thread."""
    return [
        Do(do.what, do.time, f"op{index}", do.stream, do.work, do.number)
        if do.what in ("open", "annotate") else do
        for index, do in enumerate(todo)
    ]  # fmt: skip


def _calibration() -> list[Do]:
    """Show every overhead often enough to be estimated exactly, and end with an idle device."""
    spend = Do("spend", 4_000)
    wait = Do("spend", 40_000)
    todo = [Do("open")]
    for _ in range(_NUM_SAMPLES):
        todo += [spend, Do("launch", 4_000, work=(8_000,)), wait]
        todo += [spend, Do("fetch", work=(8_000,)), wait]
    # queued in good time
    todo += [spend, Do("launch", 4_000, work=(80_000,)), spend, Do("launch", 4_000, work=(8_000,))]
    return [*todo, Do("spend", 120_000), Do("close")]
