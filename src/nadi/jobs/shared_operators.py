"""How tensor parallel ranks share the operators of a recording, by the tensors between them.

In the order of the program, each tensor is whole on every rank, shared (each rank has a part of its
features), or a partial sum. A product of a whole tensor with weights shares the outputs, and one
of a shared tensor what it sums over, so that its output is a partial sum, as in Megatron-LM
(Shoeybi et al., arXiv 1909.08053). What needs partial sums whole waits for an all-reduce, and what
needs whole tensors for an all-gather. A gradient is shared as what it is the gradient of.
"""

from enum import IntEnum
from typing import NamedTuple, NoReturn

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.jobs.recorded_ranks import Direction, Operators, Parts, Sharing, TensorUse
from nadi.trace.arrays import Floats, Ints
from nadi.trace.operations import OP_CLASSES, Operations

_GEMM, _ATTENTION, _NORM, _EMBEDDING = map(
    OP_CLASSES.index, ("gemm", "attention", "norm", "embedding")
)
_WITH_WEIGHTS = (_NORM, _EMBEDDING)
_M, _N, _K = 1, 2, 3
_SUMS = ("aten::add", "aten::add_")
_NORMS = ("aten::native_layer_norm", "aten::_fused_rms_norm", "aten::native_group_norm")
_OVER_CLASSES = ("aten::_log_softmax", "aten::nll_loss_forward", "aten::nll_loss2d_forward")
_REDUCTIONS = ("aten::sum", "aten::mean", "aten::linalg_vector_norm", "aten::norm")
_CONVOLUTION = "convolution"
_ADDED = ("aten::addmm", "aten::addmv", "aten::baddbmm")


class _State(IntEnum):
    """What a rank has of a tensor; ``FREE`` is what follows from no other tensor, as masks do."""

    WHOLE = 0
    SHARED = 1
    PARTIAL = 2
    FREE = 3


class AwaitedExchange(NamedTuple):
    """Communication that an operator waits for."""

    operator: int  # position of the operator
    comm_type: str  # ``all_reduce`` or ``all_gather``
    bytes: int  # of the whole tensor, or of a rank's part of it


class SharedOperators(NamedTuple):
    """How ranks share operators."""

    # float64, shape (operators,): of the bytes that an operator reads and gives, what one rank does
    fraction: Floats
    # int64, shape (operators,): which of the sizes of a product or an attention is shared; -1 for
    # none
    place: Ints
    exchanges: tuple[AwaitedExchange, ...]  # in the order of operators
    # bytes of weights that products and what follows them read, all and those of one rank
    weights: tuple[int, int]
    # names of products with weights that cannot be shared, and stay whole on each rank
    whole: tuple[str, ...]
    tensors: Sharing  # what a rank has of the tensors that operators give, and of those that last

    def work(self, operators: Operators, ranks: int) -> tuple[Operations, Operations]:
        """Return the work of operators as it was, and that of one of so many ranks."""
        before = operators.work.at(operators.row)
        shape = before.shape.copy()
        flops, moved = before.flops.copy(), before.bytes.copy()
        sized = np.flatnonzero(self.place >= 0)
        shape[sized, self.place[sized]] //= ranks
        for column in (flops, moved):
            known = column > 0
            column[known] = np.ceil(column[known] * self.fraction[known]).astype(np.int64)
        counted = sized[(before.op_class[sized] == _GEMM) & (self.place[sized] > 0)]
        for row in counted.tolist():
            ratio = _elements(shape[row]) / _elements(before.shape[row])
            moved[row] = np.ceil(before.bytes[row] * ratio)
        return before, Operations(flops, moved, before.op_class, before.dtype, shape)


def _elements(shape: Ints) -> int:
    batch, m, n, k = shape.tolist()
    return int(batch * (m * k + k * n + m * n))


def share_operators(operators: Operators, parts: Parts, ranks: int) -> SharedOperators:
    """Share operators among ranks. O(operands).

    - Raises UsageError if ranks cannot share them: no product has weights of a size that they
      divide, or they do not divide the heads of an attention.
    """
    walk = _Walk(operators, ranks)
    for number, part in enumerate(operators.part.tolist()):
        direction = parts.direction[part]
        if direction == Direction.FORWARD:
            walk.new_step(int(parts.step[part]))
            walk.forward(number)
        elif direction == Direction.BACKWARD:
            walk.backward(number)
        else:
            walk.update(number)
    for number, part in enumerate(operators.part.tolist()):  # states of optimizers are known now
        if parts.direction[part] == Direction.END:
            walk.update(number)
    if not operators.row.size:
        _refuse("no operator of the recording states tensors, so it cannot be told how ranks share "
                "them", "record host traces, too (nadi record, nadi.record)")  # fmt: skip
    if not walk.roles:
        _refuse(f"no product has weights of a size that {ranks} ranks divide", "give a divisor")
    sizes = walk.weights.values()
    shared = sum(-(-size // ranks) for name, size in walk.weights.items() if walk.has_part(name))
    kept = sum(size for name, size in walk.weights.items() if not walk.has_part(name))
    return SharedOperators(
        walk.fraction, walk.place, tuple(walk.exchanges), (sum(sizes), shared + kept),
        tuple(walk.whole), walk.tensors(),
    )  # fmt: skip


def _refuse(what: str, remedy: str) -> NoReturn:
    raise UsageError(Parameter("tp"), what, remedy)


class _Walk:
    """The states of all storages, in the order of the program."""

    def __init__(self, operators: Operators, ranks: int) -> None:
        self.operators, self.ranks = operators, ranks
        size = operators.row.size
        self.fraction = np.ones(size)
        self.place = np.full(size, -1, dtype=np.int64)
        self.given = np.ones(size)
        self.exchanges: list[AwaitedExchange] = []
        self.roles: dict[int, int] = {}  # of rows of products with weights: which size is shared
        self.shared_rows: set[int] = set()
        self.whole: dict[str, None] = {}
        self.weights: dict[int, int] = {}  # bytes of leaves, by storage
        self._state: dict[int, _State] = {}
        self._writers: dict[int, list[int]] = {}  # of what is free
        self._made: set[int] = set()  # storages that operators of the step gave
        self._kept: set[int] = set()  # of the optimizer, which last from step to step
        self._step = -1

    def has_part(self, storage: int) -> bool:
        """Return whether ranks share a storage."""
        return self._state.get(storage) == _State.SHARED

    def tensors(self) -> Sharing:
        """Return what a rank has of tensors."""
        lasting = self.weights.keys() | self._kept
        part = 1 / self.ranks
        return Sharing(self.given, {one: part for one in lasting if self.has_part(one)})

    def new_step(self, step: int) -> None:
        """Begin the forward of a step, in which nothing was given yet."""
        if step != self._step:
            self._step = step
            lasting = self._kept - self._made | self.weights.keys()
            self._state = {one: self._state[one] for one in lasting & self._state.keys()}
            self._made.clear()

    def forward(self, number: int) -> None:
        """Share an operator of the forward."""
        op_class = int(self._shape_class(number))
        inputs = self.operators.inputs[number]
        if op_class == _GEMM:
            weight = self._weight(number)
            if weight is not None:
                self._product(number, weight)
                return
        self._complete(number, inputs)
        parts = [use for use in inputs if self.has_part(use.storage)]
        if not parts:
            self._remember_leaves(number, op_class)
            given = [use.storage for use in inputs if use.storage in self._made]
            is_free = all(self._state_of(one) == _State.FREE for one in given)
            is_free &= op_class not in _WITH_WEIGHTS
            self._give(number, _State.FREE if is_free else _State.WHOLE)
            return
        if op_class in (_GEMM, _ATTENTION):
            self._by_heads(number)
            self._give(number, _State.SHARED)
            return
        self._elementwise(number, inputs, parts)

    def _shape_class(self, number: int) -> int:
        row = self.operators.row[number]
        return int(self.operators.work.op_class[row])

    def _weight(self, number: int) -> TensorUse | None:
        """Return the weights of a product; None if both factors were given by operators."""
        factors = list(self.operators.inputs[number])
        name = self.operators.name[number]
        if name in _ADDED:
            factors = factors[1:]
        if len(factors) < 2 or factors[1].storage in self._made:
            return None
        return factors[1]

    def _product(self, number: int, weight: TensorUse) -> None:
        row, name = int(self.operators.row[number]), self.operators.name[number]
        inputs = self.operators.inputs[number]
        self._complete(number, inputs)
        activation = inputs[1] if name in _ADDED else inputs[0]
        shape = self.operators.work.shape[row]
        self._remember(inputs, activation)
        if self.has_part(activation.storage):
            if _is_grouped(name, activation, weight):  # each channel for itself
                self._mark(number, weight)
                self._give(number, _State.SHARED)
                return
            self._mark(number, weight)
            self.place[number] = self.roles[row] = _K
            self._give(number, _State.PARTIAL)
        elif shape[_N] > 1 and shape[_N] % self.ranks == 0 and not _is_grouped(
            name, activation, weight
        ):  # fmt: skip
            self._mark(number, weight)
            for use in inputs:  # weights and biases
                is_wide = use.elements == shape[_N] or use.shape[-1:] == (int(shape[_N]),)
                if is_wide and use.storage != activation.storage:
                    self._state[use.storage] = _State.SHARED
            self.place[number] = self.roles[row] = _N
            self._give(number, _State.SHARED)
        else:
            self.whole[f"{name} to {int(shape[_N])}"] = None
            self._give(number, _State.WHOLE)

    def _remember(self, inputs: tuple[TensorUse, ...], activation: TensorUse) -> None:
        for use in inputs:
            if use.storage not in self._made and use.storage != activation.storage:
                size = use.elements * use.itemsize
                self.weights[use.storage] = max(self.weights.get(use.storage, 0), size)

    def _remember_leaves(self, number: int, op_class: int) -> None:
        """Count the weights of an operator that stays whole: of a norm, or an embedding."""
        inputs = self.operators.inputs[number]
        if op_class == _EMBEDDING and self.operators.makes_gradients[number]:
            self._remember(inputs[:1], inputs[-1])
        elif op_class == _NORM:
            self._remember(inputs[1:], inputs[0])

    def _mark(self, number: int, weight: TensorUse) -> None:
        """Let ranks share an operator, and its weights."""
        self.fraction[number] = 1 / self.ranks
        self.shared_rows.add(int(self.operators.row[number]))
        self._state[weight.storage] = _State.SHARED

    def _by_heads(self, number: int) -> None:
        """Share the batch of a product, or an attention, of which heads are a part."""
        row = self.operators.row[number]
        batch = int(self.operators.work.shape[row, 0])
        if batch > 0:
            if batch % self.ranks:
                _refuse(f"{self.ranks} ranks do not divide the {batch} heads and sequences of "
                        f"{self.operators.name[number]!r}", "give a divisor")  # fmt: skip
            self.place[number] = 0
        self._share(number)

    def _share(self, number: int) -> None:
        self.fraction[number] = 1 / self.ranks
        self.shared_rows.add(int(self.operators.row[number]))

    def _elementwise(
        self, number: int, inputs: tuple[TensorUse, ...], parts: list[TensorUse]
    ) -> None:
        """Share an operator that works on features one by one, or give it whole tensors."""
        name = self.operators.name[number]
        outputs = self.operators.outputs[number]
        largest = max(use.elements for use in parts)
        beside = [
            use for use in inputs
            if use.elements >= largest and self._state_of(use.storage) == _State.WHOLE
            and use.storage in self._made
        ]  # fmt: skip
        if name in _OVER_CLASSES:  # a few numbers for each row
            use = parts[0]
            rows = use.elements // max(use.shape[-1], 1) if use.shape else 1
            self._exchange(number, "all_reduce", 2 * rows * use.itemsize)
            self._share(number)
            is_done = name != _OVER_CLASSES[0]
            self._give(number, _State.WHOLE if is_done else _State.SHARED)
        elif beside or name in _NORMS:
            for use in dict.fromkeys(parts):
                self._exchange(number, "all_gather", -(-use.elements * use.itemsize // self.ranks))
                self._state[use.storage] = _State.WHOLE
            self._give(number, _State.WHOLE)
        elif name in _REDUCTIONS and sum(use.elements for use in outputs) == 1:
            self._share(number)
            self._give(number, _State.PARTIAL)
        else:
            self._share(number)
            self._share_free(inputs)
            for use in inputs:  # weights beside features, as of batch norms
                if use.storage not in self._made and use.shape and len(use.shape) == 1:
                    size = use.elements * use.itemsize
                    self.weights[use.storage] = size
                    self._state[use.storage] = _State.SHARED
            self._give(number, _State.SHARED)

    def _share_free(self, inputs: tuple[TensorUse, ...]) -> None:
        for use in inputs:
            for writer in self._writers.pop(use.storage, ()):
                self._share(writer)
                self.given[writer] = 1 / self.ranks

    def backward(self, number: int) -> None:
        """Share an operator of the backward, or of an accumulation of gradients."""
        origin = int(self.operators.origin[number])
        inputs, outputs = self.operators.inputs[number], self.operators.outputs[number]
        name = self.operators.name[number]
        partial = [use for use in inputs if self._state_of(use.storage) == _State.PARTIAL]
        if partial and name in _SUMS and len(partial) == len(inputs):
            self._give(number, _State.PARTIAL)
            return
        self._complete(number, inputs)
        role = self.roles.get(origin, -1)
        if role >= 0 and _CONVOLUTION in name:
            self._share(number)
            self._give(number, _State.SHARED)
            if role == _N and outputs:
                self._state[outputs[0].storage] = _State.PARTIAL
        elif role >= 0 and self._shape_class(number) == _GEMM:
            self._gradient(number, origin, role)
        elif origin in self.shared_rows or any(self.has_part(use.storage) for use in inputs):
            if self._shape_class(number) in (_GEMM, _ATTENTION):
                self._by_heads(number)
            else:
                self._share(number)
            self._give(number, _State.SHARED)
        else:
            self._give(number, _State.WHOLE)

    def _gradient(self, number: int, origin: int, role: int) -> None:
        """Share a product of the backward of a product with weights."""
        shape = self.operators.work.shape
        own = shape[self.operators.row[number]].tolist()
        first = shape[origin].tolist()
        read = {use.storage for use in self.operators.inputs[number]}
        of_input = any(storage in self.weights for storage in read)
        # sizes of the gradients of the input (m, k, n) and of the weights (n or k, k or n, m)
        likely = ({_N: _K, _K: _N}[role],) if of_input else (_M, _N)
        place = next((at for at in likely if own[at] == first[role]), -1)
        if place < 0:
            place = next((at for at in (_M, _N, _K) if own[at] == first[role]), -1)
        self.place[number] = place
        self._share(number)
        self._give(number, _State.PARTIAL if of_input and role == _N else _State.SHARED)

    def update(self, number: int) -> None:
        """Share an operator of the end of a step, by the tensors that it works on."""
        inputs, outputs = self.operators.inputs[number], self.operators.outputs[number]
        read = {use.storage for use in inputs}
        items: dict[int, list[TensorUse]] = {}
        for use in inputs:
            items.setdefault(use.item, []).append(use)
            self._kept.add(use.storage)
        for use in outputs:
            items.setdefault(use.item, []).append(use)
            if use.storage not in read:
                self._made.add(use.storage)
                self._state[use.storage] = _State.WHOLE
        total, own = 0, 0.0
        for listed in items.values():
            is_shared = any(self.has_part(use.storage) for use in listed)
            largest = max(use.elements for use in listed)
            for use in listed:
                size = use.elements * use.itemsize
                total += size
                own += size / self.ranks if is_shared else size
                if is_shared and use.elements == largest and use.storage not in self.weights:
                    self._state[use.storage] = _State.SHARED
        self.fraction[number] = self.given[number] = own / total if total else 1.0

    def _complete(self, number: int, inputs: tuple[TensorUse, ...]) -> None:
        """Sum the parts of what an operator reads."""
        for use in inputs:
            if self._state_of(use.storage) == _State.PARTIAL:
                self._exchange(number, "all_reduce", use.elements * use.itemsize)
                self._state[use.storage] = _State.WHOLE

    def _exchange(self, number: int, comm_type: str, size: int) -> None:
        self.exchanges.append(AwaitedExchange(number, comm_type, size))

    def _state_of(self, storage: int) -> _State:
        return self._state.get(storage, _State.WHOLE)

    def _give(self, number: int, state: _State) -> None:
        """Set the state of what an operator gives."""
        self.given[number] = 1 / self.ranks if state == _State.SHARED else 1.0
        for use in self.operators.outputs[number]:
            if state == _State.FREE:
                self._writers.setdefault(use.storage, []).append(number)
            else:
                self._writers.pop(use.storage, None)
            self._made.add(use.storage)
            self._state[use.storage] = state


def _is_grouped(name: str, activation: TensorUse, weight: TensorUse) -> bool:
    """Return whether a convolution sums over fewer channels than its input has."""
    if _CONVOLUTION not in name or len(activation.shape) < 2 or len(weight.shape) < 2:
        return False
    return activation.shape[1] != weight.shape[1]
