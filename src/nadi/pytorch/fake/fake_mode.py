"""The dispatch mode that runs operators on fake tensors and writes down each.

Operators whose results have sizes that depend on values: they get sizes for even routing.

Values of tensors that route tokens to experts, if each expert gets equally many.
"""

import importlib
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from nadi.pytorch.fake.operation_log import (
    ALWAYS,
    CALLS,
    RESULT,
    Call,
    GroupLog,
    LoggedOperand,
    LoggedOperation,
    OperationLog,
    comm_bytes,
    nested_tensors,
    operands_of,
    script_line,
)
from nadi.trace.operations import DTYPES
from nadi.trace.work import work_of

_INDICES = ("aten::topk", "aten::sort", "aten::argsort", "aten::argmax")
_SAME = (
    "aten::clone", "aten::_to_copy", "aten::copy_", "aten::contiguous", "aten::cat",
    "aten::stack", "aten::index", "aten::gather", "aten::index_select",
)  # fmt: skip


class RoutingHints:
    """Follows expert numbers, masks of one expert, and counts of tokens from operator to operator.

    Tensors are known by their storages, so views have the hints of their base.
    """

    def __init__(self) -> None:
        self._choices: dict[int, int] = {}  # numbers below this, each equally often
        self._share: dict[int, float] = {}  # of true elements in a mask
        self._mean: dict[int, float] = {}  # of elements

    def value(self, storage: int) -> float | None:
        """Return the mean of the elements of a tensor, if it is known."""
        return self._mean.get(storage)

    def choices(self, storage: int) -> int | None:
        """Return below which number the elements of a tensor are, if it is known."""
        return self._choices.get(storage)

    def share(self, storage: int) -> float | None:
        """Return which share of the elements of a mask is true, if it is known."""
        return self._share.get(storage)

    def compute(
        self,
        name: str,
        reads: Sequence[LoggedOperand],
        given: Sequence[Any],
        made: Sequence[LoggedOperand],
    ) -> None:
        """Follow an operator."""
        if not reads or not made:
            return
        source, target = reads[0], made[-1]
        if name in _INDICES and source.shape:
            dim = next((one for one in given[1:] if type(one) is int and one < 0), -1)
            self._choices[target.storage] = source.shape[dim]
        elif name in ("aten::eq", "aten::one_hot") and source.storage in self._choices:
            self._share[target.storage] = 1 / max(self._choices[source.storage], 1)
        elif name in ("aten::bincount", "aten::histc") and target.elements:
            self._mean[target.storage] = source.elements / target.elements
        elif name == "aten::sum":
            self._sum(source, target)
        elif name == "aten::scatter" or name == "aten::scatter_":
            self._one_hot(reads, target)
        elif name in _SAME:
            hints: tuple[dict[int, Any], ...] = (self._choices, self._share, self._mean)
            for known in hints:
                if source.storage in known:
                    known[target.storage] = known[source.storage]

    def communicate(
        self, comm_type: str, reads: Sequence[LoggedOperand], writes: Sequence[LoggedOperand]
    ) -> None:
        """Follow a collective; what comes from other ranks is like what is sent."""
        for source, target in zip(reads, writes, strict=False):
            if comm_type in ("all_to_all", "all_gather") and source.storage in self._mean:
                self._mean[target.storage] = self._mean[source.storage]

    def _sum(self, source: LoggedOperand, target: LoggedOperand) -> None:
        terms = source.elements / max(target.elements, 1)
        if source.storage in self._share:
            self._mean[target.storage] = self._share[source.storage] * terms
        elif source.storage in self._mean:
            self._mean[target.storage] = self._mean[source.storage] * terms

    def _one_hot(self, reads: Sequence[LoggedOperand], target: LoggedOperand) -> None:
        """Follow a matrix of zeros that got a one in each row, at the number of an expert."""
        chosen = next((one for one in reads[1:] if one.storage in self._choices), None)
        if chosen is not None:
            self._share[target.storage] = chosen.elements / max(target.elements, 1)


Sizes = Callable[[RoutingHints, int, Any, Any], Any]


def _nonzero(hints: RoutingHints, storage: int, mask: Any, _: Any) -> Any:
    share = hints.share(storage)
    count = mask.numel() if share is None else round(share * mask.numel())
    return mask.new_empty((count, max(mask.dim(), 0)), dtype=torch.int64)


def _bincount(hints: RoutingHints, storage: int, numbers: Any, options: Any) -> Any:
    least = options.get("minlength", 0)
    return numbers.new_empty((max(least, hints.choices(storage) or 1),), dtype=torch.int64)


def _masked_select(hints: RoutingHints, storage: int, values: Any, options: Any) -> Any:
    return values.new_empty((values.numel(),))


SIZED_BY_VALUES: dict[str, Sizes] = {
    "aten::nonzero": _nonzero,
    "aten::bincount": _bincount,
    "aten::masked_select": _masked_select,
}
"""Functions that make a result, from hints, the storage of the first argument, and arguments."""


def has_mask(name: str, args: Any) -> bool:
    """Return whether an operator takes the elements where a mask is true."""
    return name == "aten::index" and any(
        one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1]
    )


def with_indices(args: Any) -> Any:
    """Return the arguments of ``aten::index`` with the indices of masks instead of masks."""
    indices: list[Any] = []
    for one in args[1]:
        if one is not None and one.dtype in (torch.bool, torch.uint8):
            indices += one.nonzero().unbind(1)
        else:
            indices.append(one)
    return (args[0], indices, *args[2:])


torch: Any = importlib.import_module("torch")
_fake: Any = importlib.import_module("torch._subclasses.fake_tensor")
_c10d: Any = importlib.import_module("torch.distributed.distributed_c10d")

_CPP = {getattr(torch, one.torch): one.cpp[0] for one in DTYPES if hasattr(torch, one.torch)}
_COMMUNICATION = ("c10d", "_c10d_functional")
_WAIT = "_c10d_functional::wait_tensor"
_ITEM = "aten::_local_scalar_dense"
_BEGIN, _END = "profiler::_record_function_enter_new", "profiler::_record_function_exit"
# they give memory without writing to it
_NO_KERNEL = {
    "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty",
    "aten::new_empty_strided", "aten::_unsafe_view", "aten::set_", "aten::resize_",
    "aten::record_stream", "aten::is_pinned", "aten::lift_fresh", "aten::lift", "aten::detach",
}  # fmt: skip
_NO_WORK = {"prim", "profiler", "c10d_functional"}
_VALUES = {torch.bool: False}
_KINDS = {"send": "COMM_SEND", "recv": "COMM_RECV"}


class _Signature(NamedTuple):
    """What an operator is called, and the positions and names of arguments that it changes."""

    name: str
    positions: tuple[int, ...]
    names: tuple[str, ...]
    is_recorded: bool
    is_composite: bool


class Recorder:
    """Writes down what the operators of one rank do.

    Attributes
    ----------
    log
        The rows.
    groups
        The process groups that the program made.
    stream
        The stream that operators run on now.
    is_active
        Whether operators are written down; if not, only memory is counted.
    stubs
        Where the program asked for values of tensors, and what it was told; counted.
    """

    def __init__(self, log: OperationLog, groups: GroupLog) -> None:
        self.log, self.groups = log, groups
        self.stream = 0
        self.num_streams = 1
        self.parents: list[int] = []
        self.paused = 0
        self.is_active = False
        self.stubs: Counter[tuple[str, str]] = Counter()
        self.hints = RoutingHints()
        self.kept: list[Any] = []
        self._signatures: dict[Any, _Signature] = {}
        self._storages: dict[int, int] = {}  # number of each live one, by address
        self._num_tensors = 0
        self._num_storages = 0
        self._lanes: dict[object, int] = {}
        self._autograd: tuple[int, int] = (-1, -1)  # its sequence number, and the row of its range

    def new_stream(self) -> int:
        """Return the number of a further stream."""
        self.num_streams += 1
        return self.num_streams - 1

    # --- what the mode calls

    def signature(self, func: Any) -> _Signature:
        """Describe an operator; cached."""
        found = self._signatures.get(func)
        if found is None:
            schema = func._schema
            changed = [
                (place, argument.name)
                for place, argument in enumerate(schema.arguments)
                if argument.alias_info is not None and argument.alias_info.is_write
            ]
            namespace = schema.name.partition("::")[0]
            found = self._signatures[func] = _Signature(
                schema.name, tuple(place for place, _ in changed),
                tuple(name for _, name in changed), namespace not in _NO_WORK,
                func._can_decompose() if func.namespace == "aten" else False,
            )  # fmt: skip
        return found

    def record(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Write down an operator that ran."""
        signature = self.signature(func)
        if not self.is_active:
            for tensor in _tensors(result if isinstance(result, (tuple, list)) else (result,)):
                self.storage_of(tensor)
            return
        if signature.name == _BEGIN:
            self.parents.append(self.log.annotate(str(args[0]), "annotation", self.parent()))
        elif signature.name == _END:
            if self.parents:
                self.parents.pop()
        elif signature.name in CALLS:
            self.communicate(CALLS[signature.name], signature.name, args, kwargs, result)
        elif signature.name == _WAIT:
            self._wait(args[0], result)
        elif signature.is_recorded:
            self._compute(signature, args, kwargs, result)

    def communicate(self, call: Call, name: str, args: Any, kwargs: Any, result: Any) -> int:
        """Write down a communication; return its row."""
        given = [self._shown(value) for value in (*args, *(kwargs or {}).values())]
        made = self._shown(result)
        reads = nested_tensors(given[call.reads]) if call.reads >= 0 else []
        target = made if call.writes == RESULT else given[call.writes] if call.writes >= 0 else []
        writes = nested_tensors(target)
        group = self.groups.of(args[call.group])
        given[call.group] = group.name
        is_async = call.is_async == ALWAYS or (
            call.is_async >= 0 and (len(args) <= call.is_async or bool(args[call.is_async]))
        )
        peer = group.ranks[int(args[call.peer])] if call.peer >= 0 else -1
        tag = int(args[call.tag]) if call.tag >= 0 else -1
        if name.startswith("_c10d_functional::") and call.comm_type in ("send", "recv"):
            tag = max(tag, 0)
        lane = self._lane(call, group.name, peer) if is_async else self.stream
        sends = call.comm_type in ("send", "broadcast", "scatter")
        if is_async:  # the communication begins after what its stream has before it
            self.log.wait(lane, self.log.last_of(self.stream))
        self.hints.communicate(call.comm_type, reads, writes)
        operation = LoggedOperation(
            name, _KINDS.get(call.comm_type, "COMM_COLL"), "kernel", self.parent(), -1, lane,
            comm_type=call.comm_type, comm_bytes=comm_bytes(call, reads, writes, len(group.ranks)),
            group=group.name,
            src=self.groups.rank if call.comm_type == "send" else
            peer if call.comm_type == "recv" or sends else -1,
            dst=self.groups.rank if call.comm_type == "recv" else
            peer if call.comm_type in ("send", "reduce", "gather") else -1,
            tag=tag, is_async=int(is_async),
        )  # fmt: skip
        outputs = made if isinstance(made, list) else [] if made is None else [made]
        return self.log.add(operation, given, outputs, reads, writes)

    def item(self, func: Any, tensor: Any) -> Any:
        """Return a value for a tensor that has none, and note where it was asked for."""
        if not self.is_active:
            return _VALUES.get(tensor.dtype, 1.0 if tensor.dtype.is_floating_point else 1)
        hint = self.hints.value(self.storage_of(tensor))
        if tensor.dtype == torch.bool:
            value: Any = False
        elif tensor.dtype.is_floating_point:
            value = 1.0 if hint is None else float(hint)
        else:
            value = 1 if hint is None else max(round(hint), 0)
        self.stubs[script_line(), repr(value)] += 1
        operand = self._operand(tensor)
        operation = LoggedOperation(
            self.signature(func).name, "METADATA", "operator", self.parent(), self._sequence(),
        )  # fmt: skip
        self.log.add(operation, [operand], [value], [], [])
        return value

    def sized(self, name: str, shape: tuple[int, ...]) -> None:
        """Note that a result got a size that would follow from values."""
        self.stubs[script_line(), f"a result of shape {list(shape)} ({name})"] += 1

    def parent(self) -> int:
        """Return the row of the innermost range; in backward, one of its autograd function."""
        node = torch._C._current_autograd_node()
        if node is None:
            return self.parents[-1] if self.parents else -1
        number = _number_of(node)
        if self.parents and self.parents[-1] > self._autograd[1]:
            return self.parents[-1]  # a range that began in this function
        if self._autograd[0] != number or self._autograd[1] >= len(self.log):
            name = f"autograd::engine::evaluate_function: {node.name()}"
            row = self.log.annotate(name, "operator", self.parents[-1] if self.parents else -1)
            self.log.operations[row] = self.log.operations[row]._replace(sequence=number)
            self._autograd = number, row
        return self._autograd[1]

    def forget(self) -> None:
        """Begin a new list of rows; ranges that are open begin again."""
        open_ranges = [self.log.operations[row] for row in self.parents]
        self.log.clear()
        for work in self.kept:
            work._held = []
        self._autograd = (-1, -1)
        self.parents = []
        for one in open_ranges:
            self.parents.append(self.log.annotate(one.name, one.category, self.parent()))

    def waited(self, row: int) -> None:
        """Let the current stream wait for a communication."""
        if 0 <= row < len(self.log):
            self.log.wait(self.stream, row)

    def resized(self, storage: Any) -> None:
        """Count the memory of a storage after its size changed."""
        number = self._storages.get(storage._cdata)
        if number is not None:
            self.log.allocate(number, storage.nbytes())

    # --- how

    def _compute(self, signature: _Signature, args: Any, kwargs: Any, result: Any) -> None:
        given = [self._shown(value) for value in args]
        named = {name: self._shown(value) for name, value in kwargs.items()}
        made = self._shown(result)
        written = [
            one
            for place in signature.positions
            for one in (nested_tensors(given[place]) if place < len(given) else ())
        ]
        written += [one for name in signature.names for one in nested_tensors(named.get(name))]
        outputs = made if isinstance(result, (tuple, list)) else [made]
        reads = nested_tensors([*given, *named.values()])
        known = {one.storage for one in reads}
        new = [one for one in nested_tensors(outputs) if one.storage not in known]
        name, stream, work = signature.name, -1, None
        if (written or new) and name not in _NO_KERNEL:
            stream = self.stream
            work = work_of(name, operands_of([*given, *named.values()], written + new))
        self.hints.compute(name, reads, given, new or nested_tensors(outputs))
        values = [*given, *(value for key, value in named.items() if _is_shown(key, value))]
        operation = LoggedOperation(
            name, "METADATA" if stream < 0 else "COMP", "operator" if stream < 0 else "kernel",
            self.parent(), self._sequence(), stream,
            flops=max(work.flops, 0) if work else -1, bytes=work.bytes if work else -1,
        )  # fmt: skip
        self.log.add(operation, values, outputs, reads, written + new)

    def _wait(self, tensor: Any, result: Any) -> None:
        operand = self._operand(tensor)
        operation = LoggedOperation(_WAIT, "METADATA", "operator", self.parent())
        self.log.add(operation, [operand], [self._shown(result)], [], [])
        # the next operator of this stream comes after who wrote the tensor
        self.log.wait(self.stream, self.log.writer_of(operand.storage))

    def _sequence(self) -> int:
        node = torch._C._current_autograd_node()
        if node is not None:
            return _number_of(node)
        return int(torch.autograd._get_sequence_nr()) if torch.is_grad_enabled() else -1

    def _lane(self, call: Call, group: str, peer: int) -> int:
        """Return the stream of a communication that goes on beside others."""
        key = (call.comm_type, peer) if call.comm_type in _KINDS else group
        if key not in self._lanes:
            self._lanes[key] = self.new_stream()
        return self._lanes[key]

    def _shown(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._operand(value)
        if isinstance(value, (list, tuple)):
            return [self._shown(item) for item in value]
        if isinstance(value, (torch.dtype, torch.layout, torch.device, torch.memory_format)):
            return str(value)
        return value

    def _operand(self, tensor: Any) -> LoggedOperand:
        number = self._number(tensor)
        return LoggedOperand(
            number, self.storage_of(tensor), int(tensor.storage_offset()), tuple(tensor.shape),
            tuple(tensor.stride()), _CPP.get(tensor.dtype, str(tensor.dtype)), tensor.itemsize,
        )  # fmt: skip

    def _number(self, tensor: Any) -> int:
        number: int | None = tensor.__dict__.get("_nadi_number")
        if number is None:
            self._num_tensors += 1
            number = tensor.__dict__["_nadi_number"] = self._num_tensors
        return number

    def storage_of(self, tensor: Any) -> int:
        """Return the number of the storage of a tensor."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        number = self._storages.get(address)
        if number is None:
            self._num_storages += 1
            number = self._storages[address] = self._num_storages
            self.log.allocate(number, storage.nbytes())
            weakref.finalize(storage, self._freed, address, number)
        return number

    def _freed(self, address: int, number: int) -> None:
        if self._storages.get(address) == number:
            del self._storages[address]
        self.log.free(number)


def _number_of(node: Any) -> int:
    """Return the sequence number of an autograd function; -1 if it has none."""
    number = int(node._sequence_nr())
    return number if number < 2**63 else -1


def _is_shown(name: str, value: Any) -> bool:
    return value is not None and name not in ("generator", "pin_memory", "layout")


def _tensors(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


class _NewWork(_c10d.Work):  # type: ignore[misc]
    """A communication under way, which the program may wait for."""

    def __init__(self, recorder: Recorder, row: int, tensors: Any) -> None:
        super().__init__()
        self._recorder, self._row, self._held = recorder, row, tensors
        self._rows = recorder.log.operations
        # what holds it in C++ does not keep its methods in Python
        recorder.kept.append(self)

    def wait(self, timeout: Any = None) -> bool:
        """Let the current stream wait."""
        if self._rows is self._recorder.log.operations:  # and not of an earlier step
            self._recorder.waited(self._row)
        self._held = []  # whose memory is to be free when the program lets go of it
        return True

    def is_completed(self) -> bool:
        """Return True: fake communication takes no time."""
        return True

    def is_success(self) -> bool:
        """Return True."""
        return True

    def result(self) -> Any:
        """Return the tensors."""
        return self._held

    def get_future(self) -> Any:
        """Return a future that has its tensors."""
        future = torch.futures.Future()
        future.set_result(self._held)
        self._held = []
        return future


class _RecordingMode(_fake.FakeTensorMode):  # type: ignore[misc]
    """Fake tensors; what has values stays real, so that scalars can be read."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.recorder = recorder
        self.depth = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if self.depth or self.recorder.paused:
            return super().__torch_dispatch__(func, types, args, options)
        if any(one not in _OWN_TYPES for one in types):  # DTensor and its like come first
            return super().__torch_dispatch__(func, types, args, options)
        self.depth += 1
        try:
            return self._run(func, types, args, options)
        finally:
            self.depth -= 1

    def _run(self, func: Any, types: Any, args: Any, options: Any) -> Any:
        signature = self.recorder.signature(func)
        name = signature.name
        if func.namespace == "c10d":
            return self._communicate(name, args, options)
        tensors = list(_tensors((*args, *options.values())))
        if tensors and not any(isinstance(one, _fake.FakeTensor) for one in tensors):
            with _fake.unset_fake_temporarily():
                return func(*args, **options)
        if name == _ITEM:
            return self.recorder.item(func, args[0])
        if has_mask(name, args):
            return self._again(func, with_indices, args)
        if name in SIZED_BY_VALUES:
            result = self._sized(name, args, options)
        elif signature.is_composite:  # as in inference mode
            return self._again(func.decompose, lambda given: given, args, options)
        else:
            result = super().__torch_dispatch__(func, types, args, options)
        self.recorder.record(func, args, options, result)
        return result

    def _again(self, func: Any, change: Any, args: Any, options: Any = None) -> Any:
        """Run what an operator consists of, each part recorded by itself."""
        self.depth -= 1
        try:
            with self:
                return func(*change(args), **(options or {}))
        finally:
            self.depth += 1

    def _sized(self, name: str, args: Any, options: Any) -> Any:
        """Make a result whose size would follow from values, and note it."""
        named = dict(options)
        if name == "aten::bincount" and len(args) > 2:
            named["minlength"] = args[2]
        storage = self.recorder.storage_of(args[0])
        with self:
            result = SIZED_BY_VALUES[name](self.recorder.hints, storage, args[0], named)
        self.recorder.sized(name, tuple(result.shape))
        return result

    def _communicate(self, name: str, args: Any, options: Any) -> Any:
        row = -1
        if name in CALLS and self.recorder.is_active:
            row = self.recorder.communicate(CALLS[name], name, args, options, None)
        if name == "c10d::monitored_barrier_":
            return None
        call = CALLS.get(name)
        held = args[call.writes] if call and call.writes >= 0 else []
        held = list(held) if isinstance(held, (list, tuple)) else [held]
        work = _NewWork(self.recorder, row, held).boxed()
        if name in _WITH_TENSORS:
            return args[0], work
        return work


def new_mode(recorder: Recorder) -> Any:
    """Make the mode; a program that runs in it has tensors without memory."""
    return _RecordingMode(recorder)


_OWN_TYPES = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, _fake.FakeTensor)
_WITH_TENSORS = {
    "c10d::reduce_scatter_", "c10d::alltoall_", "c10d::scatter_", "c10d::_reduce_scatter_base_",
    "c10d::_allgather_base_", "c10d::broadcast_", "c10d::allreduce_", "c10d::allgather_",
}  # fmt: skip
