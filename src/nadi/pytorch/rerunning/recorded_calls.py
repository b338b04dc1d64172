"""The calls of operators that a host trace records, with their arguments."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import polars as pl

from nadi.trace.arrays import Bools
from nadi.trace.attributes import Attributes
from nadi.trace.operands import OPERAND_NAMES
from nadi.trace.operations import ITEMSIZE
from nadi.trace.trace import Trace

_SCHEMA = re.compile(
    r"(?P<space>\w+)::(?P<name>\w+)(?:\.(?P<overload>\w+))?\((?P<arguments>.*)\) ->"
)
_CHANGED = re.compile(r"Tensor\(\w+!")
COMMUNICATION = "c10d::"
_ELSEWHERE = "gloo:"
_TENSOR_FIELDS = 6  # id, storage, offset, elements, bytes of an element, device
_LARGEST = 2**62  # of a size, a stride and an offset
_OF_TYPE = re.compile(r"Tensor\((.*)\)")
_LIST = "GenericList["
_NUMBERS = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


class TensorArgument(NamedTuple):
    """A tensor that an operator was given, or gave."""

    # tensor, storage: ids of the tensor and of its memory, as recorded
    tensor: int
    storage: int
    offset: int  # first element in the storage
    dtype: str  # type of an element, as C++ names it: ``float``, ``long int``
    # shape, strides: sizes and strides in elements; strides of a contiguous tensor if none are
    # recorded
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: str  # such as ``cpu`` or ``cuda:0``
    itemsize: int  # bytes of an element

    @property
    def end(self) -> int:
        """Bytes of the storage up to the end of the tensor."""
        if 0 in self.shape:
            return self.offset * self.itemsize
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return (self.offset + last + 1) * self.itemsize


class Unrecorded(NamedTuple):
    """An argument that a trace names and does not hold, such as a process group."""

    kind: str


class Signature(NamedTuple):
    """Which operator a schema means, and the names of its parameters.

    ``by_position`` is the number of leading parameters that are given by position, and ``changed``
    has the positions of tensors that the operator writes.
    """

    space: str
    name: str
    overload: str
    parameters: tuple[str, ...]
    by_position: int
    changed: tuple[int, ...] = ()


@dataclass(frozen=True)
class RecordedCall:
    """One recorded call.

    Attributes
    ----------
    row
        Of its node in the trace.
    name
        Such as ``aten::mm``.
    schema
        Of the operator when it was recorded.
    inputs, outputs
        Values, :class:`TensorArgument`, :class:`Unrecorded`, and lists of these.
    thread
        Number of the thread that called.
    """

    row: int
    name: str
    schema: str
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    thread: int

    @property
    def signature(self) -> Signature | None:
        """The operator that is called; None if the schema cannot be read."""
        return _signature(self.schema)


class RecordedCalls:
    """The calls of operators of a host trace, and which of them are in which.

    Parameters
    ----------
    trace
        Of PyTorch's execution trace observer, alone or linked with the device trace.
    """

    def __init__(self, trace: Trace) -> None:
        attributes = trace.attributes
        self.names: list[str] = trace.nodes["name"].to_list()
        self.parent: list[int] = trace.nodes["parent"].to_list()
        self._attributes = attributes
        self._schema = _texts_of(attributes, "op_schema")
        self._thread = _numbers_of(attributes, "tid")
        self._texts = [_texts_of(attributes, name) for name in OPERAND_NAMES]
        self._start = trace.nodes["start"].to_numpy()
        self._end = self._start + np.maximum(trace.nodes["duration"].to_numpy(), 0)
        self._has_times = bool((self._end > self._start).any())
        self._is_of_gloo = _is_of_gloo(trace)
        self._is_mixed = bool(trace.nodes["name"].cast(pl.String).str.starts_with(_ELSEWHERE).any())
        children: dict[int, list[int]] = {}
        ids = trace.nodes["id"].to_list()
        order = sorted(range(len(ids)), key=ids.__getitem__)
        for row in order:
            children.setdefault(self.parent[row], []).append(row)
        self._children = children
        self._place = dict(zip(order, range(len(order)), strict=True))

    def __len__(self) -> int:
        """Return how many operators there are, with those inside of others."""
        return len(self._schema)

    def place(self, row: int) -> int:
        """Return how many nodes began before this one, on all threads."""
        return self._place[row]

    def span(self, row: int) -> tuple[int, int]:
        """Return when a node began and ended, in ns; -1 and -1 if the trace has no times."""
        start = int(self._start[row])
        return (start, int(self._end[row])) if start >= 0 and self._has_times else (-1, -1)

    def thread(self, row: int) -> int:
        """Return the recorded number of the thread of a node; 0 if there is none."""
        return self._thread.get(row, 0)

    def outermost(self, inside: int = -1) -> list[int]:
        """Return the rows of operators that are in no other one, in the order of their calls.

        ``inside`` restricts them to those below a node.
        """
        return sorted(self._outermost(inside), key=self._place.__getitem__)

    def named(self, name: str) -> list[int]:
        """Return the rows of the operators of a name, in the order of their calls."""
        found = [row for row, known in enumerate(self.names) if known == name]
        return sorted((row for row in found if row in self._schema), key=self._place.__getitem__)

    def _outermost(self, inside: int) -> Iterator[int]:
        waiting = list(self._children.get(inside, []))
        while waiting:
            row = waiting.pop()
            if row not in self._schema:
                waiting += self._children.get(row, [])
            elif not self._is_of_gloo[row] and not self._is_after(row, inside):
                yield row
                if self._is_mixed:
                    waiting += self._begun_after(row)

    def below(self, row: int) -> list[str]:
        """Return the names of all operators below a node, in the order of their calls."""
        found = []
        for inner in self.outermost(row):
            found += [self.names[inner], *self.below(inner)]
        return found

    def all_below(self, row: int) -> set[int]:
        """Return all nodes below one."""
        found, waiting = set(), list(self._children.get(row, []))
        while waiting:
            inner = waiting.pop()
            found.add(inner)
            waiting += self._children.get(inner, [])
        return found

    def _begun_after(self, row: int) -> list[int]:
        """Return the operators below one that began after it had ended.

        Threads of gloo end what a call of another thread began. The recorder then puts what comes
        next below an operator of that thread, whichever it is.
        """
        found, waiting = [], list(self._children.get(row, []))
        while waiting:
            inner = waiting.pop()
            if inner in self._schema and self._is_after(inner, row):
                found.append(inner)
            else:
                waiting += self._children.get(inner, [])
        return found

    def _is_after(self, inner: int, row: int) -> bool:
        """Return whether an operator below another one began after that had ended."""
        if not self._is_mixed or row < 0 or row not in self._schema:
            return False
        return bool(self._start[inner] >= self._end[row] > 0)

    def input_shapes(self, row: int) -> str:
        """Return the shapes of the inputs of an operator, as recorded."""
        return self._texts[OPERAND_NAMES.index("inputs.shapes")].get(row, "")

    def call(self, row: int) -> RecordedCall:
        """Return the call of a node that is an operator."""
        texts = [of_kind.get(row, "") for of_kind in self._texts]
        inputs, outputs = _arguments(*texts[:4]), _arguments(*texts[4:])
        schema, thread = self._schema[row], self.thread(row)
        return RecordedCall(row, self.names[row], schema, inputs, outputs, thread)


def _is_of_gloo(trace: Trace) -> Bools:
    """Return which nodes run on threads of gloo: they are parts of collectives.

    bool, shape (nodes,). A thread is one of gloo if collectives run there, and none is called.
    """
    thread = trace.nodes["thread"].to_numpy()
    name = trace.nodes["name"].cast(pl.String)
    runs = thread[name.str.starts_with(_ELSEWHERE).to_numpy()]
    calls = thread[name.str.starts_with(COMMUNICATION).to_numpy()]
    return np.isin(thread, np.setdiff1d(runs, [*calls.tolist(), -1]))


_Found = TypeVar("_Found")


def tensors_in(arguments: Any) -> Iterator[TensorArgument]:
    """Yield the tensors of arguments, also those in lists."""
    return _within(arguments, TensorArgument)


def _within(arguments: Any, of_type: type[_Found]) -> Iterator[_Found]:
    if isinstance(arguments, of_type):
        yield arguments
    elif isinstance(arguments, list) or type(arguments) is tuple:
        for one in arguments:
            yield from _within(one, of_type)


def _texts_of(attributes: Attributes, name: str) -> dict[int, str]:
    """Return a text for each node that has one and not an empty one."""
    rows = attributes.rows_named(name).tolist()
    found = {int(attributes.node[row]): attributes.python_value(row) for row in rows}
    return {node: text for node, text in found.items() if isinstance(text, str) and text}


def _numbers_of(attributes: Attributes, name: str) -> dict[int, int]:
    rows = attributes.rows_named(name).tolist()
    found = {int(attributes.node[row]): attributes.python_value(row) for row in rows}
    return {node: value for node, value in found.items() if isinstance(value, int)}


@cache
def _signature(schema: str) -> Signature | None:
    found = _SCHEMA.match(schema)
    if found is None:
        return None
    names: list[str] = []
    changed: list[int] = []
    by_position = -1
    for one in _split(found["arguments"]):
        if one == "*":
            by_position = len(names)
        else:
            if _CHANGED.match(one):
                changed.append(len(names))
            names.append(one.split("=")[0].split()[-1])
    if by_position < 0:
        by_position = len(names)
    if not all(name.isidentifier() for name in names):
        return None
    return Signature(
        found["space"], found["name"], found["overload"] or "default", tuple(names), by_position,
        tuple(changed),
    )  # fmt: skip


def _split(text: str) -> list[str]:
    """Split parameters at commas that are in no brackets and no quotes."""
    parts, depth, quoted, start = [], 0, False, 0
    for place, letter in enumerate(text):
        if letter in "\"'":
            quoted = not quoted
        elif not quoted and letter in "([":
            depth += 1
        elif not quoted and letter in ")]":
            depth -= 1
        elif letter == "," and not depth and not quoted:
            parts.append(text[start:place].strip())
            start = place + 1
    rest = text[start:].strip()
    return [*parts, rest] if rest else parts


def _arguments(values: str, shapes: str, types: str, strides: str) -> tuple[Any, ...]:
    of_values, of_shapes, of_types = _read(values), _read(shapes), _read(types)
    of_strides = _read(strides)
    of_strides += [[]] * (len(of_values) - len(of_strides))
    both = zip(of_values, of_shapes, of_types, of_strides, strict=False)
    return tuple(_argument(*one) for one in both)


def _read(text: str) -> list[Any]:
    if not text:
        return []
    found = json.loads(text)
    return found if isinstance(found, list) else []


def _argument(value: Any, shape: Any, kind: Any, strides: Any) -> Any:
    if not (isinstance(kind, str) and isinstance(shape, list) and isinstance(strides, list)):
        return Unrecorded(str(kind))
    if kind.startswith("Tensor("):
        return _tensor(value, shape, kind, strides)
    if kind.startswith(_LIST):
        if not isinstance(value, list):
            return Unrecorded(kind)  # cut short by the recorder
        kinds = _split(kind[len(_LIST) : -1])
        kinds += [kinds[-1]] * (len(value) - len(kinds)) if kinds else []
        if len(kinds) != len(value):
            return Unrecorded(kind)
        strides = strides if len(strides) == len(value) else [[]] * len(value)
        shape = shape if len(shape) == len(value) else [[]] * len(value)
        return [_argument(*one) for one in zip(value, shape, kinds, strides, strict=True)]
    if kind == "None" or value == "<None>":
        return None
    if kind in ("Int", "Bool", "Device", "String"):
        return value
    if kind == "Double":
        return _NUMBERS.get(str(value).strip().lower(), value)
    return None if kind == "Generator" else Unrecorded(kind)


def _tensor(value: Any, shape: Any, kind: str, strides: Any) -> TensorArgument | Unrecorded | None:
    found = _OF_TYPE.match(kind)
    if not isinstance(value, list) or len(value) < _TENSOR_FIELDS or found is None:
        return Unrecorded(kind)
    if found[1].startswith("nullptr"):
        return None  # a tensor that is undefined
    tensor, storage, offset, _, _, device = value[:_TENSOR_FIELDS]
    itemsize = ITEMSIZE.get(found[1], 0)
    extents = [offset, *shape, *strides]
    numbers = all(type(one) is int for one in (tensor, storage, *extents))
    numbers = numbers and isinstance(device, str)
    if not numbers or not itemsize or not all(0 <= one < _LARGEST for one in extents):
        return Unrecorded(kind)
    sizes = tuple(shape)
    steps = tuple(strides) if len(strides) == len(sizes) else _contiguous(sizes)
    return TensorArgument(tensor, storage, offset, found[1], sizes, steps, device, itemsize)


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= max(size, 1)
    return tuple(reversed(steps))


class ReplayPlace(NamedTuple):
    """A tensor of the replay as an argument: its number, and what was recorded of it."""

    number: int
    recorded: TensorArgument


def places_in(arguments: Any) -> Iterable[ReplayPlace]:
    """Yield the places of arguments, also those in lists."""
    return _within(arguments, ReplayPlace)
