"""The executions that a search tries: layouts of processors, times choices of everything else.

A layout is the degrees of parallelism, the microbatch and the interleaving. Which choices make a
difference depends on the layout: one processor per tensor has nothing to gather, one replica
nothing to reduce. Choices without a difference are left out.
"""

import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from operator import index
from typing import Any, NamedTuple

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.calculon.rules import DEFAULT, EstimateRules
from nadi.estimates.estimated_model import ModelDescription
from nadi.estimates.execution import CODES, Executions
from nadi.estimates.plan_execution import by_execution_names
from nadi.trace.arrays import Bools, Ints

LAYOUT = (
    "tensor_par", "pipeline_par", "data_par", "context_par", "microbatch_size",
    "pipeline_interleaving", "batch_size",
)  # fmt: skip
CHOICES: dict[str, tuple[Any, ...]] = {
    "tensor_par_net": (0,),
    "pipeline_par_net": (-1,),
    "data_par_net": (-1,),
    "datatype": ("float16",),
    "fused_activation": (True,),
    "attention_type": ("multihead",),
    "activation_recompute": ("none", "attn_only", "full"),
    "optimizer_sharding": (False, True),
    "gradient_sharding": (False,),
    "weight_sharding": (False,),
    "tensor_par_comm_type": ("ar", "p2p_rs_ag", "rs_ag"),
    "tensor_par_overlap": ("none", "ring", "pipe"),
    "seq_par_ag_redo": (False, True),
    "data_par_overlap": (False, True),
    "weight_offload": (False, True),
    "activations_offload": (False, True),
    "optimizer_offload": (False, True),
    "training": (True,),
    "flash_attention": (False,),
    "expert_par": (1,),
    "decoding": (False,),
    "ends_as_layers": (False,),
    "lora": (0,),
    "expert_tensor_par": (0,),
}
_LARGEST = 1 << 31  # of a number of ranks, sequences or chunks
# of Nadi's own rules, where they differ
_OWN_CHOICES: dict[str, tuple[Any, ...]] = {
    "fused_activation": (False,),
    "gradient_sharding": (False, True),
    "weight_sharding": (False, True),
    "tensor_par_comm_type": ("ar", "rs_ag"),
    "tensor_par_overlap": ("none", "ring"),
    "flash_attention": (True,),
}
_ZERO = ("optimizer_sharding", "gradient_sharding", "weight_sharding")  # stages of ZeRO, in order
_FEWEST_TOKENS = 4096  # of a rank that shares sequences, where no degrees are given


class _Kind(NamedTuple):
    """What of a layout says which choices make a difference: whether degrees are above 1."""

    splits: bool
    pipes: bool
    replicates: bool
    repeats: bool  # micro-batches


class _Part(NamedTuple):
    """Layouts with the same choices; each of their products is an execution."""

    layouts: dict[str, Ints]
    choices: dict[str, Ints]  # of size 1 where there is one

    @property
    def num_layouts(self) -> int:
        return self.layouts["tensor_par"].size

    @property
    def num_choices(self) -> int:
        return max(column.size for column in self.choices.values())


class SearchSpace(NamedTuple):
    """Executions of a model on a machine by number, without having them all at once."""

    model: ModelDescription
    machine: MachineDescription
    num_procs: int
    rules: EstimateRules
    parts: tuple[_Part, ...]

    @property
    def size(self) -> int:
        """How many executions there are."""
        return sum(part.num_layouts * part.num_choices for part in self.parts)

    def executions(self, begin: int, end: int) -> list[Executions]:
        """Give the executions with numbers from ``begin`` to ``end``, one value per part of them.

        O(end - begin).
        """
        found = []
        first = 0
        for part in self.parts:
            num = part.num_layouts * part.num_choices
            low, high = max(begin - first, 0), min(end - first, num)
            if low < high:
                found.append(_columns(self.num_procs, part, np.arange(low, high)))
            first += num
        return found


def search_space(
    model: ModelDescription, machine: MachineDescription, ranks: int, global_batch: int,
    given: Mapping[str, Iterable[Any]] | None = None, *, round_batch: bool = False,
    rules: EstimateRules = DEFAULT,
) -> SearchSpace:  # fmt: skip
    """Lay out the executions of a model on some ranks.

    Parameters
    ----------
    ranks, global_batch
        The number of ranks, and the sequences of a step.
    given
        Values of fields of ``Execution`` to try instead of ``CHOICES`` and of all divisors, also
        by the names of plans: ``zero`` is how many of the optimizer's state, gradients and weights
        replicas share. By default the datatype is float16, or the first that the machine has
        engines for, and ranks share a sequence if each has 4,096 tokens of it.
    round_batch
        Whether degrees of data parallelism that do not divide the batch take the largest batch
        that they divide; else they are left out.
    rules
        By which executions are evaluated; which choices there are depends on them.

    Raises
    ------
    UsageError
        If a field or a value of it is unknown, or nothing is left.
    """
    own = {} if rules.blocks_of_calculon else _OWN_CHOICES
    usual = {**own, "datatype": (_usual_datatype(machine),)}
    chosen = _checked({**usual, **by_execution_names(given or {})}, machine)
    if "context_par" not in chosen:
        least = rules.blocks_of_calculon or all(chosen["decoding"])
        most = 1 if least else max(model.seq_size // _FEWEST_TOKENS, 1)
        chosen["context_par"] = tuple(range(1, most + 1))
    layouts = _layouts(
        model, ranks, global_batch, chosen, round_batch, uneven=not rules.blocks_of_calculon
    )
    if not layouts:
        raise UsageError(
            [Parameter("ranks", ranks), ", ", Parameter("global_batch", global_batch)],
            "no degrees of parallelism divide ranks, batch, heads and widths",
            "choose numbers with common divisors, or round the batch",
        )
    by_kind: dict[_Kind, list[tuple[int, ...]]] = {}
    for layout in layouts:
        degree, stages, replicas, shared, microbatch, _, batch = layout
        kind = _Kind(degree > 1, stages > 1, replicas * shared > 1, batch > replicas * microbatch)
        by_kind.setdefault(kind, []).append(layout)
    parts = []
    for kind, rows in sorted(by_kind.items()):
        columns = np.array(rows, dtype=np.int64).T
        choices = _choices(machine, chosen, kind)
        parts.append(_Part(dict(zip(LAYOUT, columns, strict=True)), choices))
    return SearchSpace(model, machine, ranks, rules, tuple(parts))


def _usual_datatype(machine: MachineDescription) -> str:
    """Return float16 if the machine computes with it, else the first of those it has."""
    usual = CHOICES["datatype"][0]
    names = (usual, "bfloat16", "float8", "float32")
    found = (name for name in names if name in machine.matrix and name in machine.vector)
    return str(next(found, usual))


def _checked(
    given: Mapping[str, Iterable[Any]], machine: MachineDescription
) -> dict[str, tuple[Any, ...]]:
    """Give the values of each field that is given or has a choice, as numbers."""
    known = (*LAYOUT[:6], *CHOICES, "zero")
    last = len(machine.networks) - 1
    chosen: dict[str, tuple[Any, ...]] = {}
    for field, values in (CHOICES | {name: tuple(one) for name, one in given.items()}).items():
        if field not in known:
            near = difflib.get_close_matches(field, known, n=1)
            hint = f"did you mean {near[0]}; " if near else ""
            raise UsageError(
                f"field {field!r}", "a search does not vary it", f"{hint}known: {', '.join(known)}"
            )
        numbers = []
        for value in values:
            names = CODES.get(field)
            if names is not None and value not in names:
                raise UsageError(f"{field}={value}", "unknown value", f"known: {', '.join(names)}")
            if field == "zero" and value not in range(4):
                raise UsageError(f"{field}={value}", "unknown value", "known: 0, 1, 2, 3")
            number = names.index(value) if names is not None else _whole(field, value)
            numbers.append(last if field.endswith("_net") and number < 0 else number)
        chosen[field] = tuple(numbers)
    return chosen


def _whole(field: str, value: Any) -> int:
    """Return a number or a truth value as a number."""
    is_truth = isinstance(CHOICES.get(field, (0,))[0], bool)
    try:
        number = index(value)
    except TypeError:
        number = -_LARGEST - 1
    if abs(number) <= (1 if is_truth else _LARGEST):
        return number
    kind = "true or false" if is_truth else f"a whole number up to {_LARGEST:,}"
    raise UsageError(f"{field}={value}", f"it is not {kind}", "give another value")


def _divisors(number: int) -> list[int]:
    small = [one for one in range(1, int(number**0.5) + 1) if number % one == 0]
    return sorted({*small, *(number // one for one in small)})


def _allowed(numbers: list[int], chosen: Mapping[str, tuple[Any, ...]], field: str) -> list[int]:
    return [one for one in numbers if field not in chosen or one in chosen[field]]


def _layouts(
    model: ModelDescription, processors: int, batch: int,
    chosen: Mapping[str, tuple[Any, ...]], round_batch: bool, *, uneven: bool,
) -> list[tuple[int, ...]]:  # fmt: skip
    """Give all layouts, in the order of ``LAYOUT``.

    - ``uneven``: Whether chunks that were asked for may have different numbers of layers.
    """
    asked = chosen.get("pipeline_interleaving", ()) if uneven else ()
    found: list[tuple[int, ...]] = []
    places = {model.num_blocks + 2 * ends for ends in chosen["ends_as_layers"]}
    # a decoded token fills all stages: chunks would only add transfers
    is_decoding = all(chosen["decoding"]) and "pipeline_interleaving" not in chosen
    for degree in _allowed(_divisors(processors), chosen, "tensor_par"):
        if any(size % degree for size in (model.attn_heads, model.hidden, model.feedforward)):
            continue
        for stages, shared in _stages_and_shares(processors // degree, chosen):
            replicas = processors // degree // stages // shared
            rounded = batch // replicas * replicas
            if stages > max(places) or rounded == 0 or (rounded != batch and not round_batch):
                continue
            if not _allowed([replicas], chosen, "data_par") or model.seq_size % shared:
                continue
            most = [-(-blocks // stages) for blocks in places]
            several = {one for blocks in most for one in _divisors(blocks)}
            several.update(one for one in asked if 1 <= one <= max(most))
            chunks = [1] if stages == 1 or is_decoding else sorted(several)
            found += [
                (degree, stages, replicas, shared, microbatch, chunk, rounded)
                for microbatch in _allowed(
                    _divisors(rounded // replicas), chosen, "microbatch_size"
                )
                for chunk in _allowed(chunks, chosen, "pipeline_interleaving")
            ]
    return found


def _stages_and_shares(
    processors: int, chosen: Mapping[str, tuple[Any, ...]]
) -> Iterator[tuple[int, int]]:
    """Give the degrees of pipeline and context parallelism, whose product divides processors."""
    for stages in _allowed(_divisors(processors), chosen, "pipeline_par"):
        for shared in _allowed(_divisors(processors // stages), chosen, "context_par"):
            yield stages, shared


def _choices(
    machine: MachineDescription, chosen: Mapping[str, tuple[Any, ...]],
    kind: _Kind,
) -> dict[str, Ints]:  # fmt: skip
    """Give all choices that make a difference in layouts of a kind."""
    values = {field: list(chosen[field]) for field in CHOICES}
    communication = CODES["tensor_par_comm_type"]
    if not kind.splits:
        values |= {"tensor_par_comm_type": [0], "tensor_par_overlap": [0], "seq_par_ag_redo": [0]}
    elif not kind.pipes and len(values["tensor_par_comm_type"]) > 1:
        only_between = communication.index("p2p_rs_ag")
        values["tensor_par_comm_type"] = [
            one for one in values["tensor_par_comm_type"] if one != only_between
        ]
    if not kind.pipes:
        values |= {"ends_as_layers": [0]}
    if not kind.replicates:
        values |= {field: [0] for field in (*_ZERO, "data_par_overlap")}
    if machine.mem2.GiB == 0:
        values |= {"weight_offload": [0], "activations_offload": [0], "optimizer_offload": [0]}
    rows = np.array(list(itertools.product(*values.values())), dtype=np.int64)
    columns = dict(zip(values, rows.T, strict=True))
    # what full recomputation gathers, it gathers again anyway
    gathers = columns["tensor_par_comm_type"] == communication.index("rs_ag")
    recomputes = columns["activation_recompute"] == CODES["activation_recompute"].index("full")
    sense = (columns["seq_par_ag_redo"] == 0) | (gathers & ~recomputes)
    if not sense.any():
        sense[:] = columns["seq_par_ag_redo"] == columns["seq_par_ag_redo"].min()
    nested = _nested(columns, chosen, kind)
    # what a search was told and cannot be is counted with its reason
    sense = sense & nested if (sense & nested).any() else sense
    columns = {field: column[sense] for field, column in columns.items()}
    return {
        field: column[:1] if (column == column[0]).all() and column.size > 1 else column
        for field, column in columns.items()
    }


def _nested(columns: dict[str, Ints], chosen: Mapping[str, tuple[Any, ...]], kind: _Kind) -> Bools:
    """Tell which choices are a stage of ZeRO that makes a difference, or one that was given."""
    one, two, three = (columns[field] for field in _ZERO)
    found: Bools = (two <= one) & (three <= two)
    if kind.replicates and "zero" in chosen:
        found &= np.isin(one + two + three, chosen["zero"])
    elif kind.repeats and len(chosen["gradient_sharding"]) > 1:
        # whole gradients are summed over micro-batches: ZeRO 2 has no less of them than ZeRO 1
        found &= two == three
    if len(chosen["data_par_overlap"]) > 1:  # ZeRO 3 reduces with each micro-batch anyway
        found &= (three == 0) | (columns["data_par_overlap"] == 1)
    return found


def _columns(processors: int, part: _Part, numbers: Ints) -> Executions:
    """Give the executions with some numbers of a part; layouts vary slowest."""
    layout = numbers // part.num_choices
    choice = numbers - layout * part.num_choices
    first, last = layout[0], layout[-1] + 1
    columns: dict[str, Ints] = {"num_procs": np.array([processors])}
    for field, values in part.layouts.items():
        here = values[first:last]
        columns[field] = here[:1] if (here == here[0]).all() else here[layout - first]
    for field, values in part.choices.items():
        columns[field] = values if values.size == 1 else values[choice]
    if max(column.size for column in columns.values()) < numbers.size:
        columns["tensor_par"] = np.broadcast_to(columns["tensor_par"], numbers.size)
    return Executions(**columns)
