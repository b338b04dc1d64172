"""Reordering: what may move, where to, and what it gains, against a machine that plays both orders.

Programs are lists of operators with tensors. What a move is said to gain is what the program
gains when its operators are written in the new order and played again.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import nadi
from nadi.cli import main
from nadi.graph.critical_paths import walk_critical_path
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.windows import Window
from nadi.whatif import Candidate, Move, MoveEarlier
from nadi.whatif.reordering.movable_units import (
    BLOCKERS,
    find_units,
    outermost_works,
    with_tensor_edges,
)
from nadi.whatif.reordering.move_search import Promise
from nadi.whatif.reordering.moves import Block
from nadi.whatif.reordering.operation_layout import OperationLayout
from tests.amounts import examples, some
from tests.conftest import PairWriter
from tests.reference import tensors as oracle
from tests.reference.machine import Do, Machine, Program, Rank, Thread, play
from tests.reference.programs import MAIN, calibration
from tests.reference.recorder import Operands, record
from tests.reference.tensors import Access
from tests.whatif.programs import kernel, launch

SETTINGS = settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
MACHINE = Machine()
GAP = 500  # between operators
COMMUNICATION = 40  # its stream


@dataclass(frozen=True)
class Step:
    """An operator that reads, overwrites and makes tensors, and launches a kernel.

    Without a stream it is the host's alone; ``all_reduce`` is asked for on all ranks;
    ``item`` waits for the device, as the host does to look at a value.
    """

    name: str
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    makes: tuple[int, ...] = ()
    stream: int = 7
    device: int = 10_000
    host: int = 2_000

    @property
    def is_all_reduce(self) -> bool:
        return self.stream == COMMUNICATION

    @property
    def operands(self) -> Operands:
        if self.is_all_reduce:
            return Operands(f"{self.name}(Tensor tensors) -> ()", self.writes)
        arguments = [f"Tensor(a{k}!) w{k}" for k in range(len(self.writes))]
        arguments += [f"Tensor r{k}" for k in range(len(self.reads))]
        results = ", ".join("Tensor" for _ in self.makes)
        schema = f"{self.name}({', '.join(arguments)}) -> ({results})"
        return Operands(schema, self.writes + self.reads, self.makes)

    def touches(self, other: Step) -> bool:
        """Tell whether the order of both matters for the data."""
        mine, theirs = set(self.writes + self.makes), set(other.writes + other.makes)
        return bool(mine & (theirs | set(other.reads)) or theirs & set(self.reads))


Item = Step | int  # an operator, or ns of the thread between two


def items_of(steps: Sequence[Step], gap: int = GAP) -> list[Item]:
    return [item for step in steps for item in (step, gap)]


def statements(items: Iterable[Item], steps: Sequence[Step]) -> list[Do]:
    """Write a program down; device work waits for that of other streams whose data it needs."""
    todo: list[Do] = []
    for item in items:
        if isinstance(item, int):
            todo.append(Do("spend", item))
            continue
        before = steps[: steps.index(item)]
        streams = sorted({s.stream for s in before if s.touches(item)} - {item.stream, -1})
        todo += [Do("open", name=item.name), Do("spend", item.host)]
        inner = [Do("open", name=SLOW)] * item.name.startswith("aten::slow")
        todo += inner
        if item.stream >= 0:
            for stream in streams:
                todo += [Do("record", 100, stream=stream, number=steps.index(item)),
                         Do("wait", 100, stream=item.stream, number=steps.index(item))]  # fmt: skip
            what = "all_reduce" if item.is_all_reduce else "launch"
            todo.append(Do(what, 700, stream=item.stream, work=(item.device,)))
        elif "item" in item.name:
            todo.append(Do("synchronize", 100))
        todo += [Do("close")] * len(inner) + [Do("spend", 300), Do("close")]
    return todo


def program_of(ranks: Sequence[Sequence[Item]], steps: Sequence[Sequence[Step]]) -> Program:
    threads = [
        Thread(MAIN, 0, (*_calibration(), *statements(items, of_rank), Do("spend", 50)))
        for items, of_rank in zip(ranks, steps, strict=True)
    ]
    return Program(tuple(Rank((thread,)) for thread in threads), {0: tuple(range(len(ranks)))})


@cache
def _calibration() -> tuple[Do, ...]:
    return tuple(calibration(["synchronize"]))


def length_of(program: Program) -> int:
    played = play(program, MACHINE)
    times = [played.times[m] for op in played.operations for m in (op.start, op.end)]
    return max(times) - min(times)


SLOW, RATIO = "aten::mm", 1.5


def contended_program(ranks: Sequence[Sequence[Item]], steps: Sequence[Sequence[Step]]) -> Program:
    """Write a program down whose kernels of slow operators take longer beside communication.

    They run as it is played: at full speed alone, and by ``RATIO`` slower beside communication.
    """
    program = program_of(ranks, steps)
    threads = [rank.threads[0] for rank in program.ranks]
    works = [[do.work for do in thread.todo] for thread in threads]
    while True:
        changed = Program(
            tuple(Rank((replace(thread, todo=tuple(
                replace(do, work=work) for do, work in zip(thread.todo, of_thread, strict=True)
            )),)) for thread, of_thread in zip(threads, works, strict=True)), program.groups,
        )  # fmt: skip
        played = play(changed, MACHINE)
        kernels = [op for op in played.operations if op.launcher]
        longer = [list(of_thread) for of_thread in works]
        for op in kernels:
            rank, _, index, _ = op.key
            beside = sum(
                max(0, min(played.times[op.end], played.times[one.end])
                    - max(played.times[op.start], played.times[one.start]))
                for one in kernels if one.group >= 0 and one.key[0] == rank
            )  # fmt: skip
            opened = [do.name for do in threads[rank].todo[:index] if do.what == "open"]
            if opened[-1] == SLOW:
                (alone,) = threads[rank].todo[index].work
                longer[rank][index] = (alone + round(beside * (1 - 1 / RATIO)),)
        if longer == works:
            return changed
        works = longer


@dataclass(frozen=True)
class Recorded:
    """A program, and the graph of its recording."""

    steps: tuple[tuple[Step, ...], ...]
    graph: EventGraph
    window: Window
    length: int
    program: Callable[..., Program] = program_of

    def find(self) -> nadi.whatif.reordering.Found:
        return nadi.whatif.find_reorders(self.graph, self.window)

    def row(self, name: str, rank: int = 0) -> int:
        """Give the node row of an operator."""
        names = self.graph.job.traces[rank].nodes["name"].cast(str)
        (row,) = (names == name).arg_true()
        return int(row)

    def move(self, name: str, after: str) -> MoveEarlier:
        ranks = range(len(self.steps))
        moves = tuple(Move(r, (self.row(name, r),), self.row(after, r)) for r in ranks)
        return MoveEarlier(moves, name, after)

    def new_length(self, changes: Sequence[MoveEarlier]) -> int:
        """Play the program with its operators written in the new order."""
        ranks = [items_of(steps) for steps in self.steps]
        for change in changes:
            for move in change.moves:
                names = self.graph.job.traces[move.rank].nodes["name"]
                items = ranks[move.rank]
                after = str(names[move.after])
                for row in move.rows:
                    (moved,) = [i for i in items if isinstance(i, Step) and i.name == names[row]]
                    items.remove(moved)
                    place = [isinstance(i, Step) and i.name == after for i in items].index(True)
                    items.insert(place + 1, moved)
                    after = moved.name
        return length_of(self.program(ranks, self.steps))


def recorded(
    *ranks: Sequence[Step], runtime: str = "cuda", write: Callable[..., Program] = program_of
) -> Recorded:
    """Record a program; ``runtime`` is what the names of calls begin with."""
    program = write([items_of(steps) for steps in ranks], ranks)
    played = play(program, MACHINE)
    operands = {step.name: step.operands for steps in ranks for step in steps}
    operands[SLOW] = Operands(f"{SLOW}(Tensor a) -> ()", (1,))
    with tempfile.TemporaryDirectory() as folder:
        record(program, played, Path(folder), sync_events=True, operands=operands)
        for file in Path(folder).iterdir():
            text = file.read_text()
            if runtime == "cu":  # the driver synchronizes contexts
                text = text.replace('"cudaDeviceSynchronize', '"cuCtxSynchronize')
            file.write_text(re.sub('"cuda(?=[A-Z])', f'"{runtime}', text))
        graph = nadi.build_graph(nadi.load_job(folder, tensors=True))
    window = nadi.graph.choose_window(graph, [])
    assert window.length(nadi.graph.replay_graph(graph).time) == length_of(program)
    return Recorded(tuple(map(tuple, ranks)), graph, window, length_of(program), write)


def all_reduce(name: str, tensor: int, device: int = 200_000) -> Step:
    return Step(f"c10d::{name}_", writes=(tensor,), stream=COMMUNICATION, device=device)


FIRST = Step("aten::item_first", makes=(1,), stream=-1)  # nothing goes before it
LATE = (
    FIRST,
    Step("aten::gradient", reads=(1,), makes=(2,)),
    *(Step(f"aten::other{k}", reads=(1,), makes=(10 + k,), device=100_000) for k in range(3)),
    all_reduce("all", 2),
    Step("aten::item", reads=(2,), stream=-1),
)


def test_an_all_reduce_behind_independent_work_moves_before_it() -> None:
    found = recorded(LATE, LATE)
    best = found.find().candidates[0]
    assert (best.name, best.kind, best.ranks) == ("c10d::all_", "communication", (0, 1))
    assert (best.change.after, best.held_by, best.num_moved) == ("aten::gradient", "raw", 1)
    assert best.window_ns == found.new_length([best.change])
    # 300 us of other work hide it; the machine's event and launch take little
    assert 190_000 < best.gain_ns <= 200_000
    assert best.legal_ns <= best.new_start_ns < best.start_ns
    assert best.renamed_ns == best.legal_ns


def test_moved_communication_slows_what_runs_beside_it_then() -> None:
    slow = [Step(f"aten::slow{k}", reads=(1,), makes=(10 + k,), device=100_000) for k in range(8)]
    steps = [
        FIRST, all_reduce("early", 3, device=600_000), *slow[:4],
        Step("aten::item_early", reads=(3,), stream=-1),
        Step("aten::gradient", reads=(1,), makes=(2,)), *slow[4:],
        all_reduce("all", 2), Step("aten::item", reads=(2,), stream=-1),
    ]  # fmt: skip
    found = recorded(steps, write=contended_program)
    known = nadi.analyses.kernel_contention(found.graph.job)
    assert known["ratio"].to_list() == pytest.approx([RATIO], rel=0.01)
    best = found.find().candidates[0]
    assert (best.name, best.change.after) == ("c10d::all_", "aten::gradient")
    # two thirds of the 200 us that it takes are left: the kernels beside it do less meanwhile
    assert best.gain_ns == pytest.approx(200_000 / RATIO, rel=0.05)
    assert best.window_ns == pytest.approx(found.new_length([best.change]), abs=2_000)


@pytest.mark.parametrize("runtime", ["hip", "cu"])
def test_calls_of_other_runtimes_are_those_of_cuda(runtime: str) -> None:
    """Events are recorded and waited for, and values read, whatever the calls are called."""
    steps = [*LATE, Step("aten::last", reads=(12,), makes=(20,), device=50_000)]
    steps.insert(1, steps.pop(4))
    found = [recorded(steps, steps, runtime=name) for name in ("cuda", runtime)]
    names = found[1].graph.op_names
    assert names.str.starts_with("cuda").sum() == 0
    assert (
        names.str.contains(f"^{runtime}(StreamWaitEvent|EventRecord|CtxSync|DeviceSync)").sum() > 6
    )
    one, other = (
        [(c.name, c.change.after, c.held_by, c.window_ns, c.legal_ns) for c in r.find().candidates]
        for r in found
    )
    assert one == other
    assert one


def reason_of_staying(first: str, second: str) -> str:
    """Try to start one operator before another one that it shares no data with; tells why not."""
    other = Step("aten::other", makes=(10,), stream=-1)
    steps = (
        FIRST, other, Step(first, makes=(20,), stream=-1), Step(second, makes=(21,), stream=-1),
    )  # fmt: skip
    found = recorded((*steps, Step("aten::last", reads=(1,), stream=-1)))
    try:
        nadi.what_if(found.graph, found.move(second, "aten::other"))
    except nadi.errors.UsageError as error:
        return re.findall(r"\((.*?)\)", str(error))[-1]
    return ""


@pytest.mark.parametrize(
    "name",
    some([
        "_fused_dropout", "native_dropout", "dropout", "dropout_", "alpha_dropout",
        "feature_dropout", "feature_alpha_dropout", "bernoulli", "bernoulli_", "rand", "randn",
        "randint", "randperm", "rand_like", "normal", "normal_", "normal_functional", "uniform",
        "uniform_", "random", "random_", "multinomial", "exponential_", "cauchy_", "geometric_",
        "log_normal_", "poisson", "binomial", "_standard_gamma", "rrelu_with_noise",
        "scaled_dot_product_attention", "_scaled_dot_product_flash_attention",
        "_flash_attention_forward", "_efficient_attention_forward",
    ]),
)  # fmt: skip
def test_operators_that_draw_random_numbers_keep_their_order(name: str) -> None:
    assert reason_of_staying(f"aten::{name}", "aten::rand_once_more") == "random numbers"


@pytest.mark.parametrize(
    "name",
    [
        "batch_norm", "_batch_norm_with_update", "native_batch_norm", "_native_batch_norm_legit",
        "cudnn_batch_norm", "miopen_batch_norm", "instance_norm",
    ],
)  # fmt: skip
def test_operators_with_running_statistics_keep_their_order(name: str) -> None:
    assert reason_of_staying(f"aten::{name}", "aten::batch_norm_backward") == "hidden state"


@pytest.mark.parametrize(
    "name",
    [
        "item", "_local_scalar_dense", "is_nonzero", "equal", "allclose", "nonzero",
        "masked_select", "_unique2", "_unique", "unique2", "unique_consecutive", "unique_dim",
        "_assert_async", "bincount",
    ],
)  # fmt: skip
def test_nothing_passes_an_operator_whose_value_the_host_reads(name: str) -> None:
    assert reason_of_staying(f"aten::{name}", "aten::add") == "value read"


@pytest.mark.parametrize("name", ["add", "mul", "layer_norm", "norm", "brand"])
def test_other_operators_may_pass_each_other(name: str) -> None:
    assert reason_of_staying(f"aten::{name}", "aten::rand") == ""


def test_what_moves_takes_along_what_it_needs() -> None:
    steps = [*LATE]
    steps.insert(1, steps.pop(4))  # other work stands before the gradient too
    found = recorded(steps, steps)
    best = found.find().candidates[0]
    assert best.name == "c10d::all_"
    assert best.num_moved == 2
    assert best.window_ns == found.new_length([best.change])
    assert best.gain_ns > 190_000


def test_reordering_twice_gains_nothing_more() -> None:
    found = recorded(LATE, LATE)
    answer = nadi.reorder(found.graph, found.window, None)
    assert answer.together is not None
    assert answer.together.gain_ns == sum(one.gain_ns for one in answer.applied)
    assert answer.together.window_ns == answer.applied[-1].window_ns
    again = nadi.whatif.find_reorders(answer.together.replay.graph, found.window)
    assert not [one for one in again.candidates if one.gain_ns > 0]


def with_last(*last: Step) -> tuple[Step, ...]:
    return (*LATE[:5], *last, LATE[6])


@pytest.mark.parametrize(
    ("steps", "name", "after", "reason"),
    [
        # reads what the one before it wrote
        (with_last(Step("aten::use", reads=(12,), makes=(20,))),
         "aten::use", "aten::other1", "raw"),
        # overwrites what the one before it reads
        (
            (*LATE[:4], Step("aten::look", reads=(2,), makes=(9,)),
             Step("aten::fill", writes=(2,))),
            "aten::fill", "aten::other1", "war",
        ),
        (with_last(all_reduce("one", 2), all_reduce("two", 11)), "c10d::two_", "aten::other1",
         "comm order"),
        (
            with_last(Step("aten::rand", makes=(20,)), Step("aten::randn", makes=(21,))),
            "aten::randn", "aten::other2", "random numbers",
        ),
        (
            (*LATE[:3], Step("aten::item", reads=(2,), stream=-1), LATE[3], LATE[5]),
            "c10d::all_", "aten::other0", "value read",
        ),
    ],
)  # fmt: skip
def test_nothing_passes_what_it_has_to_stay_after(
    steps: tuple[Step, ...], name: str, after: str, reason: str
) -> None:
    found = recorded(steps, steps)
    with pytest.raises(nadi.errors.UsageError, match=rf"must stay after .* \({reason}\)"):
        nadi.what_if(found.graph, found.move(name, after))
    assert reason in BLOCKERS


def test_renamed_memory_would_let_more_move() -> None:
    steps = (
        FIRST,
        Step("aten::look", reads=(1, 3), makes=(2,), device=100_000),
        Step("aten::more", reads=(1, 2), makes=(4,), device=100_000),
        all_reduce("all", 1),
        Step("aten::item", reads=(1,), stream=-1),
    )
    found = recorded(steps, steps)
    assert not [one for one in found.find().candidates if one.gain_ns > 0]
    units = find_units(
        OperationLayout.of(found.graph), nadi.graph.replay_graph(found.graph).time, 0
    )
    (unit,) = np.flatnonzero(units.is_communication & (found.graph.op_trace[units.op] == 0))
    assert units.legal[unit] - units.legal_renamed[unit] > 100_000


def test_a_kernel_is_launched_before_work_of_the_host_that_it_does_not_need() -> None:
    slow = Step("aten::slow", reads=(1,), makes=(2,), stream=-1, host=100_000)
    step = Step("aten::step", reads=(1,), makes=(3,), device=200_000)
    found = recorded([FIRST, slow, step, Step("aten::item", reads=(3,), stream=-1)])
    best = found.find().candidates[0]
    assert (best.name, best.kind, best.change.after) == ("aten::step", "kernel", FIRST.name)
    assert best.window_ns == found.new_length([best.change])
    assert best.gain_ns > 100_000


def test_a_chain_has_nothing_to_move() -> None:
    chain = [Step(f"aten::s{k}", reads=(k,), makes=(k + 1,)) for k in range(6)]
    found = recorded(chain).find()
    assert found.candidates == []
    assert found.num_free == 0


def test_one_thread_that_never_waits_has_nothing_to_gain() -> None:
    steps = [FIRST, *(Step(f"aten::s{k}", (1,), makes=(k + 2,), stream=-1) for k in range(6))]
    found = recorded(steps).find()
    assert found.num_free > 0
    assert (found.num_simulated, found.candidates) == (0, [])


def test_what_touches_no_critical_path_promises_nothing() -> None:
    steps = [*LATE[:3], Step("aten::aside", reads=(1,), makes=(9,), stream=13), *LATE[3:]]
    found = recorded(steps)
    replay = nadi.graph.replay_graph(found.graph)
    units = find_units(OperationLayout.of(found.graph), replay.time, 0)
    path = walk_critical_path(replay, found.window).vertices
    promise = Promise(units, replay, path).at_fence
    works = units.layout.works.op
    critical = [
        bool(np.isin(path, units.layout.chain[begin : end + 1]).any())
        or bool(np.isin(path // 2, works[first:last]).any())
        for begin, end, first, last in zip(
            units.begin, units.end, units.first_work, units.last_work, strict=True
        )
    ]
    names = [found.graph.op_names[int(op)] for op in units.op]
    aside = names.index("aten::aside")
    assert units.can_move[aside]
    assert not critical[aside]
    assert promise[~np.array(critical)].tolist() == [0] * critical.count(False)
    assert promise[names.index("c10d::all_")] > 190_000


def test_what_needs_only_the_first_could_start_right_after_it() -> None:
    host = [Step(f"aten::s{k}", (1,), makes=(k + 2,), stream=-1) for k in range(4)]
    graph = recorded([FIRST, *host]).graph
    time = nadi.graph.replay_graph(graph).time
    units = find_units(OperationLayout.of(graph), time, 0)
    names = [graph.op_names[int(op)] for op in units.op]
    of_steps = [names.index(step.name) for step in host]
    end_of_first = time[2 * units.op[names.index(FIRST.name)] + 1]
    assert units.can_move[of_steps].all()
    assert units.legal[of_steps].tolist() == [end_of_first] * 4
    assert time[2 * units.op[of_steps[-1]]] > end_of_first


@pytest.mark.parametrize(
    ("last", "expected"), [(True, ["k2 k3", "k5 k6", "k7"]), (False, ["k1 k3", "k4 k5", "k7"])]
)
def test_the_outermost_work_on_each_stream_is_found(
    pair: PairWriter, last: bool, expected: list[str]
) -> None:
    for number, name in enumerate(("one", "two", "three")):
        pair.op(name, 100 * number, 90)
    for number, (start, stream) in enumerate(
        [(10, 7), (20, 7), (30, 9), (110, 9), (120, 7), (130, 9), (210, 7)], 1
    ):
        launch(pair, number, start, 5)
        kernel(pair, number, f"k{number}", start + 6, start + 9, stream)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    layout, names = OperationLayout.of(graph), graph.op_names.to_list()
    outer = np.array([names.index(name) for name in ("one", "two", "three")])
    which, work = outermost_works(layout, outer, last=last)
    found = [
        " ".join(sorted(names[op] for op in layout.works.op[work[which == k]])) for k in range(3)
    ]
    assert found == expected


def test_a_thread_that_has_waited_before_has_nothing_to_fill_after() -> None:
    host = [Step(f"aten::s{k}", makes=(k + 2,), stream=-1) for k in range(4)]
    first = [Step("aten::work", makes=(1,), device=100_000), Step("aten::item", (1,), stream=-1)]
    found = recorded([*first, *host])
    replay = nadi.graph.replay_graph(found.graph)
    units = find_units(OperationLayout.of(found.graph), replay.time, 0)
    path = walk_critical_path(replay, found.window).vertices
    promise = Promise(units, replay, path)
    names = [found.graph.op_names[int(op)] for op in units.op]
    item, last = names.index("aten::item"), names.index("aten::s3")
    assert last == item + 4
    assert [promise.of(Block(after, (last,))) for after in range(item, last)] == [0] * 4


def test_without_tensors_there_is_an_error() -> None:
    steps = [Step("aten::s", stream=-1), Step("aten::t", stream=-1)]
    found = recorded(steps)
    with pytest.raises(nadi.errors.UsageError, match="no data dependencies"):
        found.find()


def test_moves_that_are_none_are_refused() -> None:
    found = recorded(LATE, LATE)
    last, first = found.row("c10d::all_"), found.row("aten::gradient")
    for move, message in (
        (Move(0, (first,), last), "not in ascending order"),
        (Move(7, (last,), first), "no such operation"),
        (Move(0, (10**9,), first), "no such operation"),
        (Move(0, (last, first), first), "not in ascending order"),
        (Move(0, (last, last), first), "not in ascending order"),
        (Move(0, (last,), last), "not in ascending order"),
        (Move(0, (-1,), first), "no such operation"),
        (Move(0, (last,), -1), "no such operation"),
    ):
        with pytest.raises(nadi.errors.UsageError, match=message):
            nadi.what_if(found.graph, MoveEarlier((move,), "a", "b"))


def test_the_last_of_a_thread_moves_without_the_thread_after_it() -> None:
    steps = [FIRST, *(Step(f"aten::s{k}", (1,), makes=(k + 2,), stream=-1) for k in range(3))]
    found = recorded(steps, steps)
    change = found.move("aten::s2", "aten::item_first")
    replay = nadi.what_if(found.graph, change).replay
    assert found.window.length(replay.time) == found.new_length([change])
    before, graph = nadi.graph.replay_graph(found.graph), found.graph
    changed = {graph.op_names[int(v // 2)] for v in np.flatnonzero(replay.time != before.time)}
    assert changed == {"aten::s0", "aten::s1", "aten::s2"}


def test_the_first_call_of_a_job_can_be_named_as_any_other() -> None:
    graph = recorded(LATE).graph
    calls = np.flatnonzero((graph.gather("category") == "runtime").to_numpy())
    first, second = calls[np.argsort(graph.time[2 * calls])][:2].tolist()
    move = Move(0, (int(graph.op_row[second]),), int(graph.op_row[first]))
    with pytest.raises(nadi.errors.UsageError, match="cannot move on its own"):
        nadi.what_if(graph, MoveEarlier((move,), "a", "b"))


def test_operations_count_that_begin_in_the_window() -> None:
    found = recorded(LATE, LATE)
    graph = found.graph
    units = find_units(OperationLayout.of(graph), nadi.graph.replay_graph(graph).time, 0)
    starts = graph.time[2 * units.op]
    for first, last in ((0, 12), (12, 30), (int(units.op[-3]), int(units.op[-1]))):
        window = Window("part", -1, np.array([2 * first]), np.array([2 * last]))
        begin, end = window.start(graph.time), window.end(graph.time)
        counted = nadi.whatif.find_reorders(graph, window)
        inside = int(((starts >= begin) & (starts < end)).sum())
        assert counted.num_units == inside
        assert counted.num_free + sum(counted.blocked.values()) == inside


# random programs


@st.composite
def programs(draw: st.DrawFn) -> tuple[tuple[Step, ...], ...]:
    """Draw the same operators for two ranks; their times differ."""
    tensors = st.lists(st.integers(1, 5), max_size=2).map(lambda drawn: tuple(sorted(set(drawn))))
    todo = [FIRST]
    for k in range(draw(st.integers(3, 10))):
        kind = draw(st.sampled_from(("work", "work", "work", "host", "all_reduce", "item", "rand")))
        reads, writes = draw(tensors), draw(tensors)
        reads = tuple(t for t in reads if t not in writes)
        makes = (100 + k,) if draw(st.booleans()) else ()
        stream = draw(st.sampled_from((7, 13)))
        match kind:
            case "all_reduce":
                todo.append(all_reduce(f"all{k}", draw(st.integers(1, 5))))
            case "item":
                todo.append(Step(f"aten::item{k}", reads=reads, stream=-1))
            case "host":
                # the host has tensors of its own: it would have to wait for those of the device
                own = tuple(20 + t for t in reads), tuple(20 + t for t in writes)
                todo.append(Step(f"aten::h{k}", *own, makes, stream=-1))
            case _:
                name = f"aten::rand{k}" if kind == "rand" else f"aten::s{k}"
                todo.append(Step(name, reads, writes, makes, stream))
    todo.append(Step("aten::item_last", reads=(1, 2), stream=-1))
    times = st.integers(1, 80).map(lambda k: 1_000 * k)
    return tuple(
        tuple(
            Step(s.name, s.reads, s.writes, s.makes, s.stream,
                 s.device if s.is_all_reduce else draw(times), draw(times) // 4)
            for s in todo
        )
        for _ in range(2)
    )  # fmt: skip


def work_of(graph: EventGraph, op: int) -> list[int]:
    """Give the device work launched in an operator, or the operator itself."""
    call = np.full(graph.num_ops, -1)
    edges = np.flatnonzero(graph.edge_kind == EdgeKind.LAUNCH)
    call[graph.destinations[edges] // 2] = graph.in_src[edges] // 2
    inside = [w for w in range(graph.num_ops) if call[w] >= 0 and around(graph, int(call[w]), op)]
    return inside or [op]


def around(graph: EventGraph, op: int, outer: int) -> bool:
    while op >= 0 and op != outer:
        op = int(graph.op_parent[op])
    return op == outer


def check_data(found: Recorded, changed: EventGraph) -> None:
    """Check that everything finds its data, by the bytes that it touches."""
    time = nadi.graph.replay_graph(changed).time
    for rank, steps in enumerate(found.steps):
        operations = [
            oracle.Operation(
                -1,
                tuple(Access(t, 0, 4) for t in step.reads + step.writes),
                tuple(Access(t, 0, 4) for t in step.writes + step.makes),
            )
            for step in steps
        ]
        rows = found.graph.op_row[found.graph.op_trace == rank].tolist()
        first = int(np.searchsorted(found.graph.op_trace, rank))
        op = {s.name: first + rows.index(found.row(s.name, rank)) for s in steps}
        for src, dst, kind in oracle.edges(oracle.own_accesses(operations)):
            before, after = steps[src].name, steps[dst].name
            ends = max(time[2 * w + 1] for w in work_of(found.graph, op[before]))
            # a value is looked at when the wait for the device is over
            looks = "item" in after
            starts = min(time[2 * w + looks] for w in work_of(found.graph, op[after]))
            assert ends <= starts, f"{after} does not wait for {before} ({kind})"


def check_candidate(found: Recorded, one: Candidate) -> None:
    answer = nadi.what_if(found.graph, one.change, window=found.window)
    assert (answer.window_ns, answer.gain_ns) == (one.window_ns, one.gain_ns)
    assert one.legal_ns <= one.new_start_ns
    check_data(found, answer.replay.graph)


@SETTINGS
@given(programs())
def test_moves_keep_the_data_and_gain_what_the_program_gains(
    ranks: tuple[tuple[Step, ...], ...],
) -> None:
    found = recorded(*ranks)
    for one in found.find().candidates:
        check_candidate(found, one)
        assert one.window_ns == found.new_length([one.change])
    answer = nadi.reorder(found.graph, found.window, None)
    if answer.together:
        check_data(found, answer.together.replay.graph)
        assert answer.together.window_ns == found.new_length([a.change for a in answer.applied])


@SETTINGS
@given(programs())
def test_edges_of_data_change_no_time(ranks: tuple[tuple[Step, ...], ...]) -> None:
    graph = recorded(*ranks).graph
    kept = with_tensor_edges(graph)
    assert (nadi.graph.replay_graph(kept).time == graph.time).all()
    assert (kept.delay >= 0).all()
    assert with_tensor_edges(kept) is kept
    of_data = kept.edge_kind == EdgeKind.TENSOR  # each is of the operation that it holds up
    assert (kept.edge_op[of_data] == kept.destinations[of_data] // 2).all()


@pytest.mark.parametrize("name", ["cpu_ddp4", "gpu_dlrm8"])
def test_real_jobs(shared_traces: Path, name: str) -> None:
    graph = nadi.build_graph(nadi.load_job(shared_traces / name, tensors=True))
    window = nadi.graph.choose_window(graph, nadi.graph.find_steps(graph))
    found = nadi.whatif.find_reorders(graph, window)
    assert found.candidates[0].gain_ns > 0
    assert found.candidates[0].kind == "communication"
    if name == "cpu_ddp4":  # which has no devices
        assert {one.kind for one in found.candidates} == {"communication", "host"}
    for one in found.candidates[:3]:
        answer = nadi.what_if(graph, one.change, window=window)
        assert answer.gain_ns == one.gain_ns


def test_the_command(demo_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            ["what-if", str(demo_folder), "--reorder", "--step", "2", "--top", "3", "--apply", "1"]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "can start earlier" in out
    assert "after all moves:" in out
    assert main(["what-if", str(demo_folder), "--reorder", "--apply", "some"]) == 2
    assert "is neither a number nor all" in capsys.readouterr().err


@pytest.mark.parametrize(("rows", "others"), [((5,), ""), ((4, 5), " with 1 before it")])
def test_a_move_says_what_comes_along(rows: tuple[int, ...], others: str) -> None:
    moves = (Move(0, (5,), 2), Move(1, rows, 2))
    text = f"start aten::mm{others} right after aten::add (rank 0, 1)"
    assert str(MoveEarlier(moves, "aten::mm", "aten::add")) == text


def test_no_more_moves_are_simulated_than_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    found = recorded(LATE, LATE)
    whole = found.find()
    assert whole.num_simulated > 2
    for most in (1, 2):
        monkeypatch.setattr(nadi.whatif.reordering.move_search, "_MOST_SIMULATED", most)
        few = found.find()
        assert few.num_simulated == most
        assert len(few.candidates) <= most
