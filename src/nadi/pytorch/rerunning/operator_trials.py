"""Which recorded calls this PyTorch can make: all are tried once.

An operator that cannot be called, or that calls other operators than it did, is replaced by those
that it called, as recorded.

Collectives and messages of a replay, among the processes that replay its ranks.
"""

import contextlib
import importlib
import re
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from nadi.errors import UsageError
from nadi.files.files import available_memory
from nadi.files.trace_files import read
from nadi.progress import tell
from nadi.pytorch.rerunning.argument_rules import find_operator, refused_arguments
from nadi.pytorch.rerunning.operand_rules import CHECKED_OPERATORS, refused_operands
from nadi.pytorch.rerunning.recorded_calls import (
    COMMUNICATION,
    RecordedCall,
    RecordedCalls,
    ReplayPlace,
    TensorArgument,
    places_in,
    tensors_in,
)
from nadi.pytorch.rerunning.replay_plan import INDEX_TYPES, PlannedCall, ReplayPlan, plan_replay
from nadi.pytorch.rerunning.replay_source import replay_source, torch_name
from nadi.units import format_bytes


class Communicator:
    """Makes the calls of c10d that a trace records; every rank has one.

    Parameters
    ----------
    groups
        For the number of each call the ranks of its process group; empty for all ranks.
    """

    def __init__(self, groups: Mapping[int, tuple[int, ...]]) -> None:
        self._distributed: Any = importlib.import_module("torch.distributed")
        self._ranks = groups
        self._groups: dict[tuple[int, ...], Any] = {}
        self._under_way: dict[int, Any] = {}

    def make_groups(self, all_groups: Sequence[tuple[int, ...]]) -> None:
        """Make the process groups of all ranks, in the same order everywhere."""
        for ranks in all_groups:
            if ranks and len(ranks) < self._distributed.get_world_size():
                self._groups[ranks] = self._distributed.new_group(list(ranks))

    def communicate(self, number: int, name: str, inputs: Sequence[Any]) -> None:
        """Begin a call; it has ended after :meth:`wait`, or at once if it was not asynchronous."""
        ranks = self._ranks.get(number, ())
        work = _CALLS[name](self._distributed, inputs, self._groups.get(ranks), ranks)
        if work is not None:
            self._under_way[number] = work

    def wait(self, number: int) -> None:
        """Wait until a call has ended."""
        work = self._under_way.pop(number, None)
        if work is not None:
            work.wait()

    def meet(self) -> None:
        """Wait until all ranks are here."""
        self._distributed.barrier()

    def wait_for_all(self) -> None:
        """Wait for all calls that are under way."""
        for number in list(self._under_way):
            self.wait(number)


_Call = Callable[[Any, Sequence[Any], Any, tuple[int, ...]], Any]


def _global(ranks: tuple[int, ...], position: int) -> int:
    return ranks[position] if ranks else position


def _all_reduce(distributed: Any, inputs: Sequence[Any], group: Any, _: tuple[int, ...]) -> Any:
    return distributed.all_reduce(inputs[0][0], group=group, async_op=True)


def _broadcast(distributed: Any, inputs: Sequence[Any], group: Any, ranks: tuple[int, ...]) -> Any:
    root = _global(ranks, inputs[2])
    return distributed.broadcast(inputs[0][0], root, group=group, async_op=True)


def _reduce(distributed: Any, inputs: Sequence[Any], group: Any, ranks: tuple[int, ...]) -> Any:
    root = _global(ranks, inputs[3])
    return distributed.reduce(inputs[0][0], root, group=group, async_op=True)


def _all_gather(distributed: Any, inputs: Sequence[Any], group: Any, _: tuple[int, ...]) -> Any:
    return distributed.all_gather(inputs[0][0], inputs[1][0], group=group, async_op=True)


def _all_gather_one(distributed: Any, inputs: Sequence[Any], group: Any, _: tuple[int, ...]) -> Any:
    return distributed.all_gather_into_tensor(inputs[0], inputs[1], group=group, async_op=True)


def _gather(distributed: Any, inputs: Sequence[Any], group: Any, ranks: tuple[int, ...]) -> Any:
    parts = inputs[0][0] if inputs[0] else None
    root = _global(ranks, inputs[3])
    return distributed.gather(inputs[1][0], parts or None, root, group=group, async_op=True)


def _scatter(distributed: Any, inputs: Sequence[Any], group: Any, ranks: tuple[int, ...]) -> Any:
    parts = inputs[1][0] if inputs[1] else None
    root = _global(ranks, inputs[3])
    return distributed.scatter(inputs[0][0], parts or None, root, group=group, async_op=True)


def _reduce_scatter(distributed: Any, inputs: Sequence[Any], group: Any, _: tuple[int, ...]) -> Any:
    return distributed.reduce_scatter(inputs[0][0], inputs[1][0], group=group, async_op=True)


def _reduce_scatter_one(
    distributed: Any, inputs: Sequence[Any], group: Any, _: tuple[int, ...]
) -> Any:
    return distributed.reduce_scatter_tensor(inputs[0], inputs[1], group=group, async_op=True)


def _all_to_all_one(distributed: Any, inputs: Sequence[Any], group: Any, _: tuple[int, ...]) -> Any:
    given, sent = inputs[3] or None, inputs[4] or None
    return distributed.all_to_all_single(
        inputs[0], inputs[1], given, sent, group=group, async_op=True
    )


def _all_to_all(distributed: Any, inputs: Sequence[Any], group: Any, _: tuple[int, ...]) -> Any:
    return distributed.all_to_all(inputs[0], inputs[1], group=group, async_op=True)


def _barrier(distributed: Any, inputs: Sequence[Any], group: Any, _: tuple[int, ...]) -> Any:
    del inputs
    return distributed.barrier(group=group, async_op=True)


def _send(distributed: Any, inputs: Sequence[Any], group: Any, ranks: tuple[int, ...]) -> Any:
    return distributed.isend(inputs[0][0], _global(ranks, inputs[2]), group=group, tag=inputs[3])


def _receive(distributed: Any, inputs: Sequence[Any], group: Any, ranks: tuple[int, ...]) -> Any:
    return distributed.irecv(inputs[0][0], _global(ranks, inputs[2]), group=group, tag=inputs[3])


_CALLS: dict[str, _Call] = {
    "allreduce_": _all_reduce,
    "broadcast_": _broadcast,
    "reduce_": _reduce,
    "allgather_": _all_gather,
    "_allgather_base_": _all_gather_one,
    "gather_": _gather,
    "scatter_": _scatter,
    "reduce_scatter_": _reduce_scatter,
    "_reduce_scatter_base_": _reduce_scatter_one,
    "alltoall_base_": _all_to_all_one,
    "alltoall_": _all_to_all,
    "barrier": _barrier,
    "send": _send,
    "recv_": _receive,
}


def can_communicate(name: str) -> bool:
    """Return whether a call of c10d, such as ``allreduce_``, can be replayed."""
    return name in _CALLS


_ROUNDS = 8  # an operator in an operator in an operator ...
_HIDDEN = "a later call takes indices that are made inside"
_BESIDE = 8  # operators that a call may be away from where it is looked for


class Skipped(NamedTuple):
    """Calls that are not replayed."""

    name: str
    reason: str


class Replayable(NamedTuple):
    """What is replayed of a trace.

    Attributes
    ----------
    plan
        The calls and their tensors.
    skipped
        Each call without a replay.
    replaced
        Names of operators instead of which the operators in them are called, and why.
    trial_ns
        How long it took to call all once.
    """

    plan: ReplayPlan
    skipped: tuple[Skipped, ...]
    replaced: tuple[Skipped, ...]
    trial_ns: int


def find_replayable(
    recorded: RecordedCalls, rows: Sequence[int], *, device: str, communicates: bool,
    allowed: Collection[str] = (),
) -> Replayable:  # fmt: skip
    """Find the calls that can be replayed, in their order.

    - ``recorded``: The calls of a trace.
    - ``rows``: Those that are wanted: operators that are in no other one.
    - ``device``: Where tensors are: ``cpu`` or ``cuda``.
    - ``communicates``: Whether collectives and messages are replayed; else they are skipped.
    - ``allowed``: Names of operators that are called beside those that are known to be safe.
    - Raises UsageError if there is no room for the tensors that are there before.
    """
    search = _Search(recorded, list(rows))
    room, trial_ns = free_bytes(device), 0
    for number in count():
        refused = search.with_hidden_indices()
        refused |= search.refused(room, communicates=communicates, allowed=allowed)
        if search.replace(refused):
            continue
        plan = search.plan()
        if search.replace(refused_operands(plan)):
            continue
        if plan.external_bytes > room:
            raise UsageError(
                "", "tensors that are there before the replay need "
                f"{format_bytes(plan.external_bytes)}, and {format_bytes(room)} are free",
                "replay a part (nadi extract)",
            )  # fmt: skip
        begin = time.perf_counter_ns()
        failed = _failures(plan, device)
        trial_ns = time.perf_counter_ns() - begin
        if search.replace(failed):
            continue
        if number >= _ROUNDS:
            break
        different = _other_operators(plan, recorded, device)
        if not search.replace(different, only_outer=True):
            break
    return Replayable(plan, tuple(search.skipped), tuple(search.replaced), trial_ns)


class _Search:
    def __init__(self, recorded: RecordedCalls, rows: list[int]) -> None:
        self.rows = rows
        self.skipped: list[Skipped] = []
        self.replaced: list[Skipped] = []
        self._recorded = recorded
        self._calls: dict[int, RecordedCall] = {}

    def plan(self) -> ReplayPlan:
        return plan_replay([self._call(row) for row in self.rows])

    def refused(self, room: int, *, communicates: bool, allowed: Collection[str]) -> dict[int, str]:
        """Return the rows that cannot be called, or must not be, without a trial."""
        found = {}
        for row in self.rows:
            call = self._call(row)
            reason = _refusal(call, room, communicates=communicates)
            if not reason and not call.name.startswith(COMMUNICATION):
                reason = refused_arguments(call, allowed)
            if reason:
                found[row] = reason
        return found

    def with_hidden_indices(self) -> dict[int, str]:
        """Return the calls inside which indices are made that a later call takes.

        The backward of a pooling takes those of its forward. Called by itself, the operator around
        the forward does not give them, and what lies in their memory points anywhere.
        """
        found: dict[int, str] = {}
        hidden: dict[TensorArgument, int] = {}  # the call inside which each was made
        for row in self.rows:
            call = self._call(row)
            taken = tensors_in(call.inputs)
            found |= dict.fromkeys((hidden[one] for one in taken if one in hidden), _HIDDEN)
            for inner in self._recorded.outermost(row):
                self._note_indices(inner, row, hidden)
            for one in tensors_in(call.outputs):
                hidden.pop(one, None)
        return found

    def _note_indices(self, row: int, call: int, hidden: dict[TensorArgument, int]) -> None:
        for one in tensors_in(self._call(row).outputs):
            hidden.pop(one, None)
            if one.dtype in INDEX_TYPES:
                hidden[one] = call
        for inner in self._recorded.outermost(row):
            self._note_indices(inner, call, hidden)

    def replace(self, reasons: Mapping[int, str], *, only_outer: bool = False) -> bool:
        """Put the operators in an operator in its place; one without any is skipped.

        One that works for longer than the operators in it is skipped, too: they do not stand for
        it, but others may need what they give.
        """
        rows, changed = [], False
        for row in self.rows:
            if row not in reasons:
                rows.append(row)
                continue
            inner = list(self._recorded.outermost(row))
            name = self._recorded.names[row]
            if inner and not name.startswith(COMMUNICATION):
                rows += inner
                stands = only_outer or self._is_mostly_in(row, inner)
                left_out = self.replaced if stands else self.skipped
                left_out.append(Skipped(name, reasons[row]))
                changed = True
            elif only_outer:
                rows.append(row)
            else:
                self.skipped.append(Skipped(name, reasons[row]))
                changed = True
        self.rows = rows
        return changed

    def _is_mostly_in(self, row: int, inner: Sequence[int]) -> bool:
        """Tell whether operators in an operator take half of its time, as far as it is recorded."""
        begin, end = self._recorded.span(row)
        spans = map(self._recorded.span, inner)
        return end - begin <= 2 * sum(until - since for since, until in spans)

    def _call(self, row: int) -> RecordedCall:
        if row not in self._calls:
            self._calls[row] = self._recorded.call(row)
        return self._calls[row]


def _refusal(call: RecordedCall, room: int, *, communicates: bool) -> str:
    """Return why there is no room for a call, or why it is no communication that can be made."""
    largest = max((one.end for one in tensors_in((call.inputs, call.outputs))), default=0)
    if largest > room:
        return f"a tensor of it needs {format_bytes(largest)}, and {format_bytes(room)} are free"
    if not call.name.startswith(COMMUNICATION):
        return ""
    if not communicates:
        return "communication is not replayed"
    known = can_communicate(call.name.removeprefix(COMMUNICATION))
    return "" if known else "this communication cannot be replayed"


def load_source(text: str, **names: Any) -> dict[str, Any]:
    """Run the source of a replay, and return the functions in it."""
    found: dict[str, Any] = {"__name__": "replay", **names}
    # replay_source wrote it: names of operators are words in it, and values are literals
    exec(compile(text, "replay", "exec"), found)  # noqa: S102
    return found


def _failures(plan: ReplayPlan, device: str) -> dict[int, str]:
    """Call everything once, and return the rows that failed with the reason.

    Tells a listener of :mod:`nadi.progress` how many calls are done.
    """
    torch: Any = importlib.import_module("torch")
    made = load_source(replay_source(plan._replace(calls=()), device=device).text)
    view, found = made["view"], {}
    with torch.no_grad():
        tensors = external_tensors(made)
        for number, planned in enumerate(plan.calls):
            tell(number, len(plan.calls))
            try:
                for place, base in planned.views:
                    tensors[place.number] = view(tensors[base.number], *_layout(place.recorded))
                if not planned.call.name.startswith(COMMUNICATION):
                    _call(planned, tensors, device)
            except Exception as error:  # of any kind: operators of other packages are among them
                found[planned.call.row] = _first_line(error)
                _fill(planned, tensors, made)
            if any(_is_other(tensors[place.number], place) for place in places_in(planned.inputs)):
                found[planned.call.row] = "it changes the shape of what it is given"
                _fill(planned, tensors, made)
    return found


def external_tensors(made: Mapping[str, Any]) -> list[Any]:
    """Make the tensors that are there before a replay; UsageError if there is no room for them."""
    tensors: list[Any] = _with_room(made["externals"])
    return tensors


def _with_room(make: Callable[..., Any], *layout: Any) -> Any:
    """Make tensors that a replay cannot do without; UsageError if there is no room for them."""
    try:
        return make(*layout)
    except (RuntimeError, MemoryError) as error:  # a limit of the process that no file tells
        what = f"there is no room for the tensors of the replay: {_first_line(error)}"
        raise UsageError("", what, "replay a part (nadi extract)") from None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _call(planned: PlannedCall, tensors: list[Any], device: str) -> None:
    signature = planned.call.signature
    assert signature is not None
    operator = find_operator(signature)
    if planned.call.name in CHECKED_OPERATORS:
        _check_spans(planned, tensors)
    values = [_value(one, tensors, device) for one in planned.inputs]
    by_name = dict(zip(signature.parameters, values, strict=False))
    positional = values[: signature.by_position]
    named = {name: by_name[name] for name in signature.parameters[len(positional) : len(values)]}
    given = operator(*positional, **named)
    outputs = planned.outputs
    results = [given] if len(outputs) == 1 else given
    for place, result in _pairs(outputs, results):
        if result is None:
            raise ValueError("gives no tensor where it gave one")
        tensors[place.number] = result
        _check_result(result, place.recorded)


def _check_result(result: Any, recorded: TensorArgument) -> None:
    """Check that a call gives what it gave; without autocast, for one, types are others."""
    if tuple(result.shape) != recorded.shape:
        raise ValueError(
            f"gives shape {list(result.shape)} instead of {list(recorded.shape)}: it depends on "
            "values"
        )
    if result.layout != importlib.import_module("torch").strided:
        raise ValueError("gives a tensor that is not dense")
    if result.dtype != _layout(recorded)[0]:
        given = str(result.dtype).removeprefix("torch.")
        raise ValueError(f"gives {given} instead of {torch_name(recorded.dtype)}")


def _check_spans(planned: PlannedCall, tensors: list[Any]) -> None:
    """Check that kernels which take memory as contiguous stay within that of each tensor."""
    signature = planned.call.signature
    names = signature.parameters if signature else ()
    for name, value in zip(names, planned.inputs, strict=False):
        if name.startswith("grad"):
            continue  # often one number for all elements, which kernels copy first
        for place in places_in([value]):
            one = tensors[place.number]
            if (one.storage_offset() + one.numel()) * one.itemsize > one.untyped_storage().nbytes():
                raise ValueError(f"its {name} has elements that share memory")


def _is_other(tensor: Any, place: ReplayPlace) -> bool:
    """Return whether a tensor has not the shape that it had; None is one that no call made."""
    return tensor is None or tuple(tensor.shape) != place.recorded.shape


def _pairs(outputs: Any, results: Any) -> Sequence[tuple[ReplayPlace, Any]]:
    """Return each place of outputs with its result."""
    if isinstance(outputs, ReplayPlace):
        return [(outputs, results)]
    if isinstance(outputs, list | tuple):
        both = zip(outputs, results, strict=False)
        return [pair for output, result in both for pair in _pairs(output, result)]
    return []


def _value(one: Any, tensors: list[Any], device: str) -> Any:
    if isinstance(one, ReplayPlace):
        return tensors[one.number]
    if isinstance(one, list):
        return [_value(inner, tensors, device) for inner in one]
    if isinstance(one, str) and one.split(":")[0] in ("cpu", "cuda", "meta"):
        return device
    return one


def _fill(planned: PlannedCall, tensors: list[Any], made: Mapping[str, Any]) -> None:
    """Make the outputs of a call that failed, so that others can be tried."""
    places = [place for place, _ in planned.views]
    places += [one for one in places_in(planned.inputs) if _is_other(tensors[one.number], one)]
    places += [place for place, _ in _pairs(planned.outputs, planned.outputs)]
    for place in places:
        one = place.recorded
        tensors[place.number] = _with_room(made["new_tensor"], one.end, *_layout(one), 0)


def _layout(one: TensorArgument) -> tuple[Any, int, list[int], list[int]]:
    """Return type, offset, shape and strides as torch takes them."""
    torch: Any = importlib.import_module("torch")
    dtype = getattr(torch, torch_name(one.dtype))
    return dtype, one.offset, list(one.shape), list(one.strides)


def _other_operators(plan: ReplayPlan, recorded: RecordedCalls, device: str) -> dict[int, str]:
    """Return the calls in which other operators are called than was recorded."""
    torch: Any = importlib.import_module("torch")
    silent = {"communicate": lambda *_: None, "wait": lambda _: None}
    made = load_source(replay_source(plan, device=device).text, **silent)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "host.json"
        tensors = external_tensors(made)
        observer = torch.profiler.ExecutionTraceObserver().register_callback(str(path))
        with torch.profiler.profile(execution_trace_observer=observer):
            made["run"](tensors)
        observed = RecordedCalls(read(path))
    called = observed.outermost()
    found, at = {}, 0
    for planned in plan.calls:
        if planned.call.name.startswith(COMMUNICATION):
            continue
        near = called[at : at + planned.num_view_operators + _BESIDE]
        place = next((k for k, r in enumerate(near) if observed.names[r] == planned.call.name), -1)
        at += place + 1
        below = observed.below(near[place]) if place >= 0 else []
        if below != recorded.below(planned.call.row):
            found[planned.call.row] = "it calls other operators than it did"
    return found


_STATUS = Path("/proc/self/status")
_DATA = re.compile(r"VmData:\s+(\d+) kB")


def free_bytes(device: str) -> int:
    """Return how much memory is free where tensors are."""
    if device == "cuda":
        torch: Any = importlib.import_module("torch")
        return int(torch.cuda.mem_get_info()[0])
    return available_memory()


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    """Let this process allocate what is free and no more: then an operator fails by itself.

    Else Linux gives memory that is not there, and ends the process that uses it, or another one.
    Other systems have no such limit.
    """
    found = _DATA.search(_STATUS.read_text()) if _STATUS.exists() else None
    if found is None:
        yield
        return
    resource: Any = importlib.import_module("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = int(found[1]) * 1024 + available_memory()
    known = [one for one in (limit, soft, hard) if one != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(known), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
