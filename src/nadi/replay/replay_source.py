"""A replay as Python source, which needs torch and nothing else.

The source has the operators, shapes and order of a plan, and neither names of modules nor values
of tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from nadi.model.dtypes import DTYPES
from nadi.replay.recorded_calls import COMMUNICATION, TensorArgument, Unrecorded
from nadi.replay.replay_plan import External, Place, PlannedCall, ReplayPlan

__all__ = ["ReplaySource", "replay_source", "torch_name"]

_TORCH = {name: dtype.torch for dtype in DTYPES for name in dtype.cpp}
_CALLS_OF_PART = 1000  # of a function; longer ones take longer to compile
_HEAD = '''"""Operators of a recorded step, replayed. Needs torch; run it with python."""

import statistics
import time

import torch


def new_tensor(num_bytes, dtype, offset, shape, strides, bound):
    """Make a tensor of random elements; indices stay below a bound."""
    memory = torch.zeros(max(num_bytes, 1), dtype=torch.uint8, device=DEVICE)
    whole = memory[: num_bytes // dtype.itemsize * dtype.itemsize].view(dtype)
    if dtype.is_floating_point or dtype.is_complex:
        if dtype.itemsize > 1:
            whole.uniform_(0.01, 1.0)
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
    """Replay a few times, and print the time of each part."""
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
        For each step the names of functions that take the list of tensors.
    """

    text: str
    steps: tuple[tuple[str, ...], ...]


def replay_source(
    plan: ReplayPlan, step_ends: Sequence[int] = (), *, device: str = "cpu"
) -> ReplaySource:
    """Write the source of a plan.

    Parameters
    ----------
    plan
        What is replayed.
    step_ends
        After how many calls each step but the last one ends.
    device
        Where all tensors are.
    """
    operators: dict[str, str] = {}
    parts: list[str] = []
    steps: list[tuple[str, ...]] = []
    ends = [*step_ends, len(plan.calls)]
    for begin, end in zip([0, *step_ends], ends, strict=True):
        names = []
        for first in range(begin, max(end, begin + 1), _CALLS_OF_PART):
            calls = range(first, min(first + _CALLS_OF_PART, end))
            lines = [line for k in calls for line in _lines(k, plan.calls[k], operators, device)]
            names.append(f"part_{len(parts)}")
            body = "\n".join(f"    {line}" for line in lines) or "    pass"
            parts.append(f"def {names[-1]}(t):\n{body}\n")
        steps.append(tuple(names))
    of_operators = "".join(f"{name} = {value}\n" for value, name in operators.items())
    made = "\n".join(f"    {_external(one)}" for one in plan.externals)
    externals = f"def externals():\n    t = [None] * {plan.num_places}\n{made}\n    return t\n"
    calls_of_parts = "\n".join(f"    {name}(t)" for names in steps for name in names)
    run = f"def run(t):\n{calls_of_parts}\n"
    head = _HEAD.replace("import torch\n", f'import torch\n\nDEVICE = "{device}"\n', 1)
    body = "\n\n".join([of_operators, externals, *parts, run])
    return ReplaySource(f"{head}\n{body}{_MAIN}", tuple(steps))


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


def _flat(arguments: Iterable[Any]) -> Iterator[Place]:
    for one in arguments:
        if isinstance(one, Place):
            yield one
        elif isinstance(one, list):
            yield from _flat(one)


def _called(planned: PlannedCall, operators: dict[str, str], device: str) -> str:
    signature = planned.call.signature
    assert signature is not None  # calls without one are not planned
    path = f"torch.ops.{signature.space}.{signature.name}.{signature.overload}"
    name = operators.setdefault(path, f"op_{len(operators)}")
    texts = [_text(one, device) for one in planned.inputs]
    named = zip(signature.parameters, texts, strict=False)
    arguments = [
        text if position < signature.by_position else f"{parameter}={text}"
        for position, (parameter, text) in enumerate(named)
    ]
    return f"{name}({', '.join(arguments)})"


def _assigned(planned: PlannedCall, called: str) -> Iterator[str]:
    kept = [_kept(one, planned) for one in planned.outputs]
    if not any(kept):
        yield called
    elif len(kept) == 1 and isinstance(planned.outputs[0], Place):
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
    if not isinstance(one, Place) or one.number in planned.ended:
        return ""
    return f"t[{one.number}]"


def _view(recorded: TensorArgument, base: int) -> str:
    dtype = f"torch.{torch_name(recorded.dtype)}"
    shape, strides = list(recorded.shape), list(recorded.strides)
    return f"view(t[{base}], {dtype}, {recorded.offset}, {shape}, {strides})"


def _text(one: Any, device: str) -> str:
    if isinstance(one, Place):
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
