"""A replay as Python source, which needs torch and nothing else.

The source has the operators, shapes and order of a plan, and neither names of modules nor values
of tensors.
"""

import inspect
import keyword
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from nadi.pytorch.rerunning import thread_team
from nadi.pytorch.rerunning.order import CallStream, ThreadOrder
from nadi.pytorch.rerunning.recorded_calls import (
    COMMUNICATION,
    ReplayPlace,
    TensorArgument,
    Unrecorded,
)
from nadi.pytorch.rerunning.replay_plan import External, PlannedCall, ReplayPlan
from nadi.trace.operations import DTYPES

_TORCH = {name: dtype.torch for dtype in DTYPES for name in dtype.cpp}
_CALLS_OF_PART = 1000  # of a function; longer ones take longer to compile
_HEAD = '''"""Operators of a recorded step, replayed. Needs torch; run it with python."""

import statistics
import time

import torch


def new_tensor(num_bytes, dtype, offset, shape, strides, bound):
    """Make a tensor of random elements, below a bound if there is one."""
    memory = torch.zeros(max(num_bytes, 1), dtype=torch.uint8, device=DEVICE)
    whole = memory[: num_bytes // dtype.itemsize * dtype.itemsize].view(dtype)
    if dtype.is_floating_point or dtype.is_complex:
        if dtype.itemsize > 1:
            whole.uniform_(-bound if bound else 0.01, bound or 1.0)
    elif dtype == torch.bool:
        whole.fill_(True)
    elif bound > 1:
        whole.random_(0, bound)
    return torch.as_strided(whole, shape, strides, offset)


def view(base, dtype, offset, shape, strides):
    """Make a tensor in the memory of another one."""
    if base.dtype == dtype:
        return torch.as_strided(base, shape, strides, offset)
    empty = torch.empty(0, dtype=dtype, device=base.device)
    return empty.set_(base.untyped_storage(), offset, shape, strides)

'''
_MAIN = '''

def main():
    """Replay a few times, and print how long that takes."""
    with torch.no_grad():
        t = externals()
        for _ in range(2):
            run(t)
        times = []
        for _ in range(5):
            start = time.perf_counter()
            run(t)
            if DEVICE != "cpu":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
    print(f"{statistics.median(times) * 1e3:.3f} ms, the median of {len(times)} replays")


if __name__ == "__main__":
    main()
'''


class ReplaySource(NamedTuple):
    """Source of a replay.

    Attributes
    ----------
    text
        A module with ``externals()``, which makes the tensors that are there before, and
        ``run(t)``, which calls all operators. The functions in ``steps`` are the parts of it.
    steps
        For each step and each thread the names of functions that take the list of tensors.
    num_threads
        With several ``run`` takes a :class:`~nadi.pytorch.rerunning.thread_team.ThreadTeam`, too,
        which holds
        the locks in the module's ``LOCKS``.
    """

    text: str
    steps: tuple[tuple[tuple[str, ...], ...], ...]
    num_threads: int


def replay_source(
    plan: ReplayPlan, step_ends: Sequence[int] = (), *, device: str = "cpu",
    order: ThreadOrder | None = None, streams: Sequence[CallStream] = (),
) -> ReplaySource:  # fmt: skip
    """Write the source of a plan.

    Parameters
    ----------
    plan
        What is replayed.
    step_ends
        After how many calls each step but the last one ends.
    device
        Where all tensors are.
    order
        Threads of the calls; None for one.
    streams
        Where each call runs; empty for the current stream of each thread.
    """
    writer = _Writer(plan, device, order, streams)
    ends = [*step_ends, len(plan.calls)]
    for begin, end in zip([0, *step_ends], ends, strict=True):
        writer.add_step(begin, max(begin, end))
    of_operators = "".join(f"{name} = {value}\n" for value, name in writer.operators.items())
    made = "\n".join(f"    {_external(one)}" for one in plan.externals)
    externals = f"def externals():\n    t = [None] * {plan.num_places}\n{made}\n    return t\n"
    constants = f'DEVICE = "{device}"\n'
    if writer.num_streams > 1:
        more = f"*(torch.cuda.Stream() for _ in range({writer.num_streams - 1}))"
        constants += f"STREAMS = [torch.cuda.current_stream(), {more}]\n"
    head = _HEAD.replace("import torch\n", f"import torch\n\n{constants}", 1)
    body = "\n\n".join([of_operators, externals, *writer.parts, writer.run()])
    text = f"{head}\n{body}{_MAIN}"
    if writer.num_threads > 1:
        text = _with_threads(text, writer)
    return ReplaySource(text, tuple(writer.steps), writer.num_threads)


class _Writer:
    """Functions of the parts of a replay, one thread and step after the other."""

    def __init__(
        self, plan: ReplayPlan, device: str, order: ThreadOrder | None,
        streams: Sequence[CallStream],
    ) -> None:  # fmt: skip
        self.operators: dict[str, str] = {}
        self.parts: list[str] = []
        self.steps: list[tuple[tuple[str, ...], ...]] = []
        self.num_threads = order.num_threads if order else 1
        self._calls, self._device, self._streams = plan.calls, device, streams
        self.num_streams = max((one.stream for one in streams), default=0) + 1
        self._thread = order.thread if order else (0,) * len(plan.calls)
        self._before: dict[int, list[str]] = {}
        self._after: dict[int, list[str]] = {}
        self.handovers = order.handovers if order else ()
        for lock, (earlier, later) in enumerate(self.handovers):
            self._after.setdefault(earlier, []).append(f"LOCKS[{lock}].release()")
            self._before.setdefault(later, []).append(f"LOCKS[{lock}].acquire()")

    def add_step(self, begin: int, end: int) -> None:
        of_thread: list[list[int]] = [[] for _ in range(self.num_threads)]
        for number in range(begin, end):
            of_thread[self._thread[number]].append(number)
        self.steps.append(tuple(tuple(self._functions(numbers)) for numbers in of_thread))

    def _functions(self, numbers: Sequence[int]) -> Iterator[str]:
        """Write the calls of a thread in a step, and yield the names of the functions."""
        for first in range(0, len(numbers), _CALLS_OF_PART):
            lines: list[str] = []
            stream = 0
            for number in numbers[first : first + _CALLS_OF_PART]:
                if self.num_streams > 1:
                    lines += _stream_lines(self._streams[number], stream)
                    stream = self._streams[number].stream
                lines += self._lines(number)
            if stream:
                lines.append("torch.cuda.set_stream(STREAMS[0])")
            name = f"part_{len(self.parts)}"
            self.parts.append(f"def {name}(t):\n{_indented(lines)}\n")
            yield name

    def _lines(self, number: int) -> Iterator[str]:
        yield from self._before.get(number, ())
        yield from _lines(number, self._calls[number], self.operators, self._device)
        yield from self._after.get(number, ())

    def run(self) -> str:
        if self.num_threads == 1:
            lines = [f"{name}(t)" for step in self.steps for names in step for name in names]
            return f"def run(t):\n{_indented(lines)}\n"
        shown = [f"[{', '.join(_listed(names) for names in step)}]," for step in self.steps]
        locks = f"LOCKS = [threading.Lock() for _ in range({len(self.handovers)})]"
        steps = f"STEPS = [\n{_indented(shown)}\n]"
        lines = ["for functions in STEPS:", "    team.run(functions, t)"]
        return f"{locks}\n{steps}\n\n\ndef run(t, team):\n{_indented(lines)}\n"


def _stream_lines(one: CallStream, current: int) -> Iterator[str]:
    """Yield the lines before a call that put it on its stream."""
    if one.stream != current:
        yield f"torch.cuda.set_stream(STREAMS[{one.stream}])"
    for other in one.awaited:
        yield f"STREAMS[{one.stream}].wait_stream(STREAMS[{other}])"
    for place in one.shared:
        yield f"t[{place}].record_stream(STREAMS[{one.stream}])"


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"    {line}" for line in lines) or "    pass"


def _listed(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]"


def _with_threads(text: str, writer: _Writer) -> str:
    """Put the class of the threads into the source, and give them to each run."""
    team = f"        team = ThreadTeam({writer.num_threads}, LOCKS, torch.no_grad)\n"
    text = text.replace("        t = externals()\n", f"        t = externals()\n{team}", 1)
    text = text.replace("            run(t)\n", "            run(t, team)\n")
    imports = "".join(f"import {name}\n" for name in ("queue", "statistics", "threading"))
    imports = f"from __future__ import annotations\n\n{imports}"
    text = text.replace("import statistics\n", imports, 1)
    own = inspect.getsource(thread_team.ThreadTeam)
    return text.replace("\n\ndef new_tensor", f"\n\n{own}\n\ndef new_tensor", 1)


def torch_name(dtype: str) -> str:
    """Return what torch calls a type of elements that C++ calls so."""
    return _TORCH[dtype]


def _external(one: External) -> str:
    place, recorded = one.place.number, one.place.recorded
    dtype = f"torch.{torch_name(recorded.dtype)}"
    return (
        f"t[{place}] = new_tensor({one.num_bytes}, {dtype}, {recorded.offset}, "
        f"{list(recorded.shape)}, {list(recorded.strides)}, {one.bound})"
    )


def _lines(
    number: int, planned: PlannedCall, operators: dict[str, str], device: str
) -> Iterator[str]:
    """Yield the lines of one call."""
    for earlier in planned.awaited:
        yield f"wait({earlier})"
    for place, base in planned.views:
        yield f"t[{place.number}] = {_view(place.recorded, base.number)}"
    call = planned.call
    if call.name.startswith(COMMUNICATION):
        arguments = ", ".join(_text(one, device) for one in planned.inputs)
        yield f"communicate({number}, {call.name[len(COMMUNICATION) :]!r}, [{arguments}])"
    else:
        yield from _assigned(planned, _called(planned, operators, device))
    ended = [one for one in planned.ended if not _is_output_alone(one, planned)]
    if ended:
        yield " = ".join(f"t[{one}]" for one in ended) + " = None"


def _is_output_alone(number: int, planned: PlannedCall) -> bool:
    """Return whether a place is an output that nobody uses, and so is not kept."""
    return any(
        number == one.number for one in _flat(planned.outputs) if one is not None
    ) and not any(number == one.number for one in _flat(planned.inputs))


def _flat(arguments: Iterable[Any]) -> Iterator[ReplayPlace]:
    for one in arguments:
        if isinstance(one, ReplayPlace):
            yield one
        elif isinstance(one, list):
            yield from _flat(one)


def _called(planned: PlannedCall, operators: dict[str, str], device: str) -> str:
    signature = planned.call.signature
    assert signature is not None  # calls without one are not planned
    packet = _attribute(f"torch.ops.{signature.space}", signature.name)
    path = _attribute(packet, signature.overload)
    name = operators.setdefault(path, f"op_{len(operators)}")
    texts = [_text(one, device) for one in planned.inputs]
    named = zip(signature.parameters, texts, strict=False)
    arguments = [
        text if position < signature.by_position else f"{parameter}={text}"
        for position, (parameter, text) in enumerate(named)
    ]
    return f"{name}({', '.join(arguments)})"


def _attribute(of: str, name: str) -> str:
    """Return an attribute as source; overloads have names such as ``from``."""
    return f'getattr({of}, "{name}")' if keyword.iskeyword(name) else f"{of}.{name}"


def _assigned(planned: PlannedCall, called: str) -> Iterator[str]:
    kept = [_kept(one, planned) for one in planned.outputs]
    if not any(kept):
        yield called
    elif len(kept) == 1 and isinstance(planned.outputs[0], ReplayPlace):
        yield f"{kept[0]} = {called}"
    else:
        yield f"given = {called}"
        for position, one in enumerate(planned.outputs):
            inner = f"given[{position}]" if len(kept) > 1 else "given"
            if isinstance(one, list):
                for place, output in enumerate(one):
                    if _kept(output, planned):
                        yield f"{_kept(output, planned)} = {inner}[{place}]"
            elif kept[position]:
                yield f"{kept[position]} = {inner}"


def _kept(one: Any, planned: PlannedCall) -> str:
    """Return where an output goes; nothing if nobody uses it."""
    if isinstance(one, list):
        return "".join(_kept(inner, planned) for inner in one)
    if not isinstance(one, ReplayPlace) or one.number in planned.ended:
        return ""
    return f"t[{one.number}]"


def _view(recorded: TensorArgument, base: int) -> str:
    dtype = f"torch.{torch_name(recorded.dtype)}"
    shape, strides = list(recorded.shape), list(recorded.strides)
    return f"view(t[{base}], {dtype}, {recorded.offset}, {shape}, {strides})"


def _text(one: Any, device: str) -> str:
    if isinstance(one, ReplayPlace):
        return f"t[{one.number}]"
    if isinstance(one, list):
        return f"[{', '.join(_text(inner, device) for inner in one)}]"
    if isinstance(one, Unrecorded):
        return "None"  # a process group, which the communicator knows
    if isinstance(one, float):
        return repr(one) if one == one and abs(one) != float("inf") else f'float("{one}")'
    if isinstance(one, str) and one.split(":")[0] in ("cpu", "cuda", "meta"):
        return "DEVICE"
    return repr(one)
