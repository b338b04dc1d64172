"""Changes against the machine: what a change predicts is what the changed program takes.

The machine plays the program as it is changed; the graph of the recording of the unchanged one
must say the same, to the nanosecond, for every operation that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

import nadi
from tests.amounts import examples, some
from tests.link.test_linked_programs import (
    EVEN,
    QUICK,
    SLOW_TO_CALL,
    Linked,
    different,
    expected,
    is_after_calibration,
    link,
)
from tests.reference.machine import Do, Key, Machine, Program, Rank, Thread, play
from tests.reference.programs import Action, Description, descriptions, program_of

# a program that fails is shown as it was drawn: to find a smaller one takes minutes
SETTINGS = settings(
    max_examples=examples(8), phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
HOST = ("open", "annotate", "close")
LAUNCHES = ("launch", "launch", "launch_graph", "memset", "copy")
WAITS = ("fetch", "synchronize")
NOTHING = Do("spend")


def rewritten(program: Program, rewrite: Callable[[Key, Do], Do]) -> Program:
    """Put another statement in the place of each."""
    return Program(
        tuple(
            Rank(tuple(
                Thread(thread.number, thread.begin, tuple(
                    rewrite((r, thread.number, index, 0), do)
                    for index, do in enumerate(thread.todo)
                ))
                for thread in rank.threads
            ))
            for r, rank in enumerate(program.ranks)
        ),
        program.groups,
    )  # fmt: skip


def check(
    linked: Linked, change: str, program: Program, named: Mapping[Key, Key] | None = None
) -> None:
    """Compare a change with a program played.

    Parameters
    ----------
    named
        The key that an operation has in the recording, where it has another one.
    """
    replayed = linked.times(nadi.what_if(linked.graph, change).replay.time)
    names = named or {}
    true = {
        (*names.get(tuple(moment[:4]), tuple(moment[:4])), moment[4]): time
        for moment, time in expected(play(program, linked.machine)).items()
    }
    assert len(true) <= len(replayed)
    assert not different(replayed, true)


@pytest.mark.parametrize("machine", [QUICK, EVEN], ids=["quick", "even"])
def test_half_the_kernels(machine: Machine) -> None:
    @SETTINGS
    @given(descriptions((*HOST, *LAUNCHES, *WAITS, "cross", "synchronize_stream")))
    def holds(description: Description) -> None:
        program = program_of(description)
        linked = link(program, machine, sync_events=True)
        halved = rewritten(
            program, lambda _, do: replace(do, work=tuple(time // 2 for time in do.work))
        )
        check(linked, "scale kind=device 0.5", halved)

    holds()


@pytest.mark.parametrize(
    ("machine", "change", "what"),
    some(
        [
            (machine, change, what)
            for machine in (QUICK, SLOW_TO_CALL)
            for change, what in (
                ("remove Memset", ("memset",)),
                ("remove 'Memcpy HtoD'", ("copy",)),
                ("remove Memcpy kind=memcpy", ("copy", "fetch")),
                ("remove gemm", ("launch", "launch_graph")),
                ("remove kind=device", ("launch", "launch_graph", "memset", "copy", "fetch")),
                ("remove cudaDeviceSynchronize", ("synchronize",)),
            )
        ],
        of=4,
        first=1,
    ),
)
def test_removed_work(machine: Machine, change: str, what: tuple[str, ...]) -> None:
    there = tuple(dict.fromkeys(what))
    always = tuple((Action(name),) for name in there)

    @SETTINGS
    @given(descriptions((*HOST, *LAUNCHES, *WAITS, "cross")))
    def holds(description: Description) -> None:
        ((todo,),) = description
        first = tuple(action for some in always for action in some)
        program = program_of((((*first, *todo),),))
        linked = link(program, machine, sync_events=True)
        without = rewritten(program, lambda _, do: NOTHING if do.what in what else do)
        check(linked, change, without)

    holds()


@pytest.mark.parametrize("machine", [QUICK, EVEN], ids=["quick", "even"])
def test_moved_work(machine: Machine) -> None:
    @SETTINGS
    @given(descriptions((*HOST, *LAUNCHES, *WAITS)))
    def holds(description: Description) -> None:
        ((todo,),) = description
        program = program_of((((Action("memset"), *todo),),))
        linked = link(program, machine)
        moved = rewritten(
            program, lambda _, do: replace(do, stream=99) if do.what == "memset" else do
        )
        check(linked, "move Memset to 99", moved)

    holds()


kernels = st.lists(
    st.builds(Action, st.just("launch"), st.just(0), st.integers(1, 60), st.integers(1, 60)),
    min_size=1, max_size=5,
)  # fmt: skip


@pytest.mark.parametrize("machine", [QUICK, EVEN], ids=["quick", "even"])
def test_captured_ranges(machine: Machine) -> None:
    @SETTINGS
    @given(st.lists(st.tuples(kernels, st.sampled_from(["fetch", "memset", "launch", "close"])),
                    min_size=1, max_size=3))  # fmt: skip
    def holds(ranges: list[tuple[list[Action], str]]) -> None:
        todo: list[Action] = []
        for inside, after in ranges:
            todo += [Action("annotate"), *inside, Action("close"), Action(after, 0, 20, 20)]
        program = program_of(((tuple(todo),),))
        linked = link(program, machine)
        captured, named = as_graphs(program)
        change = "cuda-graph kind=annotation"
        check(linked, change, captured, named)

    holds()


def as_graphs(program: Program) -> tuple[Program, dict[Key, Key]]:
    """Let each annotation launch all its work by its first call, and do nothing else.

    Returns
    -------
    Program, dict
        And the key in the recording of the work that another call launches now.
    """
    ((thread,),) = [rank.threads for rank in program.ranks]
    todo, named = list(thread.todo), {}
    first = -1  # the call of the range that is open
    is_open = False
    for index, do in enumerate(todo):
        key = (0, thread.number, index, 0)
        if not is_after_calibration(program, key):
            continue
        if do.what == "annotate":
            is_open, first = True, -1
        elif do.what == "close":
            is_open = False
        elif is_open and do.what == "launch" and first >= 0:
            work = (*todo[first].work, *do.work)
            todo[first] = replace(todo[first], what="launch_graph", work=work)
            named[(0, thread.number, first, len(work))] = (0, thread.number, index, 1)
            todo[index] = NOTHING
        elif is_open:
            first = index if do.what == "launch" else first
            todo[index] = do if do.what == "launch" else NOTHING
    changed = Thread(thread.number, thread.begin, tuple(todo))
    return Program((Rank((changed,)),), program.groups), named
