"""What an operator reads and writes, derived from the text of its schema.

``aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)`` reads and
writes its first argument and reads its second; a result that is marked as a part of an argument
is a view of it. A recording has millions of operations but few schemas: each is read once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from nadi.kernels.tensor_accesses import ALIAS, FRESH, READ, SCALAR, WRITE

__all__ = ["KERNEL_EFFECTS", "Effects", "effects_by_name", "effects_of_schema"]

_SCHEMA = re.compile(r"(\w+)::(\w+)(?:\.(\w+))?\((.*)\)\s*->\s*(.*)", re.DOTALL)
_TENSOR = re.compile(r"Tensor(?:\((?P<alias>[^)]*)\))?[?\[\]\d]*(?:\s+(?P<name>\w+))?")
_NAME = re.compile(r"(?!autograd::|torch::)\w+::(\w+)(?:\.\w+)?")

# these change or query the metadata of a tensor, and leave its data alone
_NO_DATA = re.compile(
    r"(detach|resize|resize_as|set|squeeze|unsqueeze|t|transpose|swapaxes|swapdims|as_strided"
    r"|requires_grad|rename)_|record_stream|is_\w+|result_type|can_cast|retain_grad|barrier"
    r"|(sym_)?(size|stride|numel|storage_offset)|dim"
)
_READS_ALL_THE_SAME = {"is_nonzero"}
# the result has the shape of an argument, whose data is not read; by position
_SHAPE_ONLY = {
    "expand_as": 1, "view_as": 1, "reshape_as": 1, "type_as": 1, "to.other": 1,
    "unflatten_dense_tensors": 1,
}  # fmt: skip
_SHAPE_OF_FIRST = re.compile(r"\w+_like|new_\w+")
_ALLOCATES = re.compile(r"_?(new_)?empty\w*")
_OVERWRITES = re.compile(
    r"(_foreach_)?(copy|fill|zero)_"
    r"|(uniform|normal|random|bernoulli|exponential|cauchy|geometric|log_normal|eye)_"
)
_COLLECTIVES = ("c10d",)


@dataclass(frozen=True)
class Effects:
    """What an operator does to each argument and with each result.

    Attributes
    ----------
    inputs, outputs
        By position, bits of :mod:`nadi.kernels.tensor_accesses`: what is read and written, and
        which results are new memory unless they lie in that of an argument. The last entry applies
        to all positions after it.
    guessed
        Whether this is a guess, as no schema was recorded.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    guessed: bool = False

    @property
    def touch_data(self) -> bool:
        """Whether data is read or written, or memory allocated; a view does none of these."""
        return any(self.inputs) or any(flags and not flags & ALIAS for flags in self.outputs)


_NOTHING = Effects((0,), (0,))
# a compiled kernel does not record which of its tensors it writes
KERNEL_EFFECTS = Effects((READ | WRITE,), (WRITE | FRESH,), guessed=True)


def effects_of_schema(schema: str) -> Effects | None:
    """Parse a schema; None if the text is not a schema.

    Arguments marked ``(a!)`` are written, and also read unless the operator is known to overwrite
    them (``copy_``, ``fill_``, ``out=``). Arguments are neither read nor written if the result is
    a view of them. ``c10d`` marks nothing: there arguments named ``output`` are written; without
    one, operators whose name ends in ``_`` write their first tensors.
    """
    found = _SCHEMA.fullmatch(schema.strip())
    if found is None:
        return None
    namespace, name, overload, arguments, results = found.groups()
    if _NO_DATA.fullmatch(name) and name not in _READS_ALL_THE_SAME:
        return _NOTHING
    if namespace in _COLLECTIVES:
        return _collective(name, arguments)
    without_data = _SHAPE_ONLY.get(name, _SHAPE_ONLY.get(f"{name}.{overload}", -1))
    inputs = [
        0 if position == without_data else _argument(name, kind, keyword_only)
        for position, (kind, keyword_only) in enumerate(_arguments(arguments))
    ]
    if inputs and _SHAPE_OF_FIRST.fullmatch(name):
        inputs[0] = 0
    new = FRESH if _ALLOCATES.fullmatch(name) else FRESH | WRITE
    outputs = [_result(kind, new) for kind in _parts(results.strip().removeprefix("("))]
    return Effects((*inputs, 0), (*outputs, 0))


def effects_by_name(name: str) -> Effects | None:
    """Guess what an operator without a schema does; None if the name is not an operator's.

    It reads its arguments and allocates its results. It writes its first argument if its name ends
    in ``_``.
    """
    found = _NAME.fullmatch(name)
    if found is None or _NO_DATA.fullmatch(found[1]):
        return None
    in_place = found[1].endswith("_")
    first = READ if not in_place else WRITE if _OVERWRITES.fullmatch(found[1]) else READ | WRITE
    if _SHAPE_OF_FIRST.fullmatch(found[1]):
        first = 0
    new = FRESH if _ALLOCATES.fullmatch(found[1]) else FRESH | WRITE
    return Effects((first, READ), (new,), guessed=True)


def _argument(name: str, kind: str, keyword_only: bool) -> int:
    found = _TENSOR.match(kind)
    if found is None:
        return 0
    alias = found["alias"]
    if alias is None:
        # the other operand of arithmetic may be a number
        return READ | SCALAR if found["name"] == "other" else READ
    if "!" not in alias:
        return 0  # a view of the argument; if it copies instead, a nested operator does that
    return WRITE if keyword_only or _OVERWRITES.fullmatch(name) else READ | WRITE


def _result(kind: str, new: int) -> int:
    found = _TENSOR.match(kind)
    if found is None:
        return 0
    return new if found["alias"] is None else FRESH | WRITE | ALIAS


def _collective(name: str, arguments: str) -> Effects:
    tensors = [
        (position, str(found["name"]))
        for position, (kind, _) in enumerate(_arguments(arguments))
        if (found := _TENSOR.match(kind))
    ]
    inputs = dict.fromkeys(range(max([position for position, _ in tensors], default=0) + 1), 0)
    stated = [position for position, name in tensors if name.startswith("output")]
    for position, _ in tensors:
        inputs[position] = WRITE if position in stated else READ
    if tensors and not stated and name.endswith("_"):
        inputs[tensors[0][0]] = WRITE if name.startswith("recv") else READ | WRITE
    return Effects((*inputs.values(), 0), (0,))


def _arguments(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each argument, and whether it comes after the ``*``."""
    keyword_only = False
    for part in _parts(text):
        if part == "*":
            keyword_only = True
        elif part:
            yield part, keyword_only


def _parts(text: str) -> Iterator[str]:
    """Split at the commas outside of brackets; an unmatched closing bracket ends the text."""
    depth = begin = 0
    for at, letter in enumerate(text):
        if letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
            if depth < 0:
                text = text[:at]
                break
        elif letter == "," and depth == 0:
            yield text[begin:at].strip()
            begin = at + 1
    yield text[begin:].strip()
