"""Level ``shapes``: sizes moved by secret amounts, as far as simulated answers stay.

Nothing that leaves is a true number times a factor: of two such numbers that follow from the same
sides, the sides could be computed. FLOPs and bytes of a product are computed from its moved sides,
and every other number is rounded to a grid, up or down as the key says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import InputError
from nadi.sharing.obfuscation.certified_box import largest_difference
from nadi.sharing.obfuscation.fidelity import Answer, Fidelity, Yardstick, answers
from nadi.sharing.obfuscation.guarantees import GUARANTEES, IN_BOX
from nadi.sharing.obfuscation.product_numbers import (
    LEAST_MOVED,
    MOST_MOVED,
    TILE,
    Forms,
    bytes_forms,
    flops_forms,
)
from nadi.sharing.obfuscation.renamed_traces import spans
from nadi.sharing.obfuscation.secret_key import SecretKey
from nadi.sharing.obfuscation.structure import UNTIMED, simulator_job
from nadi.systems.prices.traced_operations import distinct_values
from nadi.systems.system import System
from nadi.trace.arrays import Floats, Ints
from nadi.trace.attributes import Attributes, Part, combined
from nadi.trace.protobuf_values import pack_list
from nadi.trace.schema import NODES
from nadi.trace.trace import Job, Trace

__all__ = ["Moved", "move_job"]

_SPREAD = MOST_MOVED  # of sides, and of numbers that no simulated answer depends on
_SPREADS = (_SPREAD, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)
_OF_TOTAL = 0.1  # the part of the spread by which the volume of all communication moves
_SHAPE = "gemm_shape"


class Moved(NamedTuple):
    """A job whose sizes have moved.

    Attributes
    ----------
    job
        The new job.
    fidelity
        How it differs on each system.
    before
        The answers of the original.
    in_box
        By which share its step time differs at most on any system of the box; None if not asked.
    """

    job: Job
    fidelity: list[Fidelity]
    before: dict[str, Answer]
    in_box: float | None


def move_job(
    job: Job, key: SecretKey, systems: Mapping[str, System], *, in_box: bool = False
) -> Moved:
    """Move the sizes of a job as far as its answers stay within the tolerance of shapes.

    Equal sizes stay equal. FLOPs follow shapes, and durations stay.

    Parameters
    ----------
    job
        Without names.
    key
        With the salt of the job.
    systems
        On which both jobs are simulated.
    in_box
        Whether step times are also kept on every system of the box, if computations have times.

    Returns
    -------
    Moved

    Raises
    ------
    InputError
        If no sizes can be moved within the tolerance.
    """
    tolerance = GUARANTEES["shapes"].tolerance
    before = answers(simulator_job(job), systems)
    yardstick = Yardstick(before, systems, tolerance)
    priced = _is_priced(job)
    plain = simulator_job(job) if in_box and not priced else None
    for spread in _SPREADS:
        moved = _moved_job(job, key, spread, spread if priced else _SPREAD)
        changed = simulator_job(moved)
        if (found := yardstick.measure(changed)) is None:
            continue
        bound = None if plain is None else largest_difference(plain, changed, IN_BOX)
        if plain is None or bound is not None:
            return Moved(moved, found, before, bound)
    raise InputError(
        "job", f"its answers differ by more than {tolerance:.0%} even if sizes move by "
        f"{_SPREADS[-1]:.1%} only, so that level shapes cannot keep its promise",
        "use level names",
    )  # fmt: skip


def _is_priced(job: Job) -> bool:
    """Whether computations without a time are simulated by what their sides cost."""
    return any(trace.nodes.filter(UNTIMED).height for trace in dict.fromkeys(job.traces))


def _moved_job(job: Job, key: SecretKey, spread: float, of_sides: float) -> Job:
    """Move sizes of communication by one spread, and all that operations state by another."""
    different = list({id(trace): trace for trace in job.traces}.values())
    known, sizes = _communication(different, key, spread)
    done = {}
    for trace in different:
        size = trace.column("comm_bytes")
        place = np.searchsorted(known, size)
        moved = np.where(size > 0, np.maximum(np.rint(sizes[place]), 1), size)
        done[id(trace)] = _moved(trace, moved.astype(np.int64), key, of_sides)
    return replace(job, traces=tuple(done[id(trace)] for trace in job.traces))


def _communication(traces: list[Trace], key: SecretKey, spread: float) -> tuple[Ints, Floats]:
    """Return the different sizes of communication, ascending, and what each becomes."""
    every = np.concatenate([trace.column("comm_bytes") for trace in traces])
    known, count = np.unique(every, return_counts=True)
    moved = _on_grid("communication", known, key, spread)
    weight = np.where(known > 0, count, 0)
    if weight.any():  # the volume of all of it stays nearly what it was
        moved *= (weight * known).sum() / (weight * moved).sum()
        moved *= 1 + _OF_TOTAL * spread * key.unit("volume")
    return known, moved


def _on_grid(what: str, values: Ints, key: SecretKey, spread: float) -> Floats:
    """Round numbers to powers of 1 + spread, up or down so that their logarithms keep the mean.

    What leaves is a point of the grid, and says only between which two points the number lies.
    """
    step = math.log2(1 + spread)
    dither = np.array([(key.unit(what, str(value)) + 1) / 2 for value in values.tolist()])
    place = np.floor(np.log2(np.maximum(values, 1)) / step + dither)
    return np.asarray(np.where(values > 0, np.exp2(place * step), values))


def _moved(trace: Trace, comm_bytes: Ints, key: SecretKey, spread: float) -> Trace:
    given = trace.attributes
    node, number, shapes = distinct_values(given, _SHAPE)
    new = [_shape(shape, key, spread) for shape in shapes]
    columns = {"comm_bytes": pl.Series(comm_bytes, dtype=NODES.dtypes["comm_bytes"])}
    for name, forms in (("flops", flops_forms), ("bytes", bytes_forms)):
        value = trace.column(name)
        known, place = np.unique(value, return_inverse=True)
        moved = np.rint(_on_grid(name, known, key, spread))[place].astype(np.int64)
        pairs = np.stack([number, value[node]], axis=1)
        different, of_pair = np.unique(pairs, axis=0, return_inverse=True)
        computed = np.array(
            [_computed(forms, shapes[k], new[k], true) for k, true in different.tolist()],
            dtype=np.int64,
        )[of_pair.reshape(-1)] if node.size else np.zeros(0, dtype=np.int64)  # fmt: skip
        moved[node] = np.where(computed >= 0, computed, moved[node])
        columns[name] = pl.Series(moved)
    others = given.filtered(np.array(given.names, dtype=object)[given.name] != _SHAPE)
    packed = [pack_list("int64_list", shape) for shape in new]
    return replace(
        trace, nodes=trace.nodes.with_columns(**columns),
        given_attributes=_joined(others, spans(_SHAPE, node, number, packed)),
    )  # fmt: skip


def _computed(forms: Forms, shape: Sequence[int], moved: Sequence[int], value: int) -> int:
    """Return what a number becomes that follows from the sides of a product; -1 if it does not."""
    before, after = forms(shape), forms(moved)
    return next((new for old, new in zip(before, after, strict=True) if old == value > 0), -1)


def _joined(*parts: Attributes) -> Attributes:
    return combined([Part(part) for part in parts])


def _shape(shape: list[int], key: SecretKey, spread: float) -> list[int]:
    """Move the sides of a matrix product: equal sides alike, by multiples of a tile's part."""
    return [
        side if side < LEAST_MOVED
        else max(round(side * (1 + spread * key.unit("side", str(side))) / TILE) * TILE, TILE)
        for side in shape
    ]  # fmt: skip
