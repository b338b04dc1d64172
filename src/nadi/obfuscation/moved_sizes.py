"""Level ``shapes``: sizes moved by secret factors, as far as simulated answers stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from nadi.errors import InputError
from nadi.model.arrays import Floats, Ints
from nadi.model.attributes import Attributes, Part, combined
from nadi.model.protobuf_values import pack_list
from nadi.model.schema import NODES
from nadi.model.trace import Job, Trace
from nadi.obfuscation.fidelity import Answer, Fidelity, Yardstick, answers
from nadi.obfuscation.guarantees import GUARANTEES
from nadi.obfuscation.renamed_traces import spans
from nadi.obfuscation.secret_key import SecretKey
from nadi.obfuscation.structure import simulator_job
from nadi.pricing.traced_operations import distinct_values
from nadi.simulator.machine.system import System

__all__ = ["move_job"]

_SPREADS = (0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)
_OF_TOTAL = 0.1  # the part of the spread by which the volume of all communication moves
_FEW = 64  # sizes below it stay: heads of a group, or a batch of 1
_TILE = 8
_SHAPE = "gemm_shape"


def move_job(
    job: Job, key: SecretKey, systems: Mapping[str, System]
) -> tuple[Job, list[Fidelity], dict[str, Answer]]:
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

    Returns
    -------
    job, fidelity, before
        The new job, how it differs on each system, and the answers of the original.

    Raises
    ------
    InputError
        If no sizes can be moved within the tolerance.
    """
    tolerance = GUARANTEES["shapes"].tolerance
    before = answers(simulator_job(job), systems)
    yardstick = Yardstick(before, systems, tolerance)
    for spread in _SPREADS:
        moved = _moved_job(job, key, spread)
        if (found := yardstick.measure(simulator_job(moved))) is not None:
            return moved, found, before
    raise InputError(
        "job", f"its answers differ by more than {tolerance:.0%} even if sizes move by "
        f"{_SPREADS[-1]:.1%} only, so that level shapes cannot keep its promise",
        "use level names",
    )  # fmt: skip


def _moved_job(job: Job, key: SecretKey, spread: float) -> Job:
    different = list({id(trace): trace for trace in job.traces}.values())
    known, factor = _communication(different, key, spread)
    done = {}
    for trace in different:
        size = trace.column("comm_bytes")
        place = np.searchsorted(known, size)
        moved = np.where(size > 0, np.rint(size * factor[np.minimum(place, known.size - 1)]), size)
        done[id(trace)] = _moved(trace, moved.astype(np.int64), key, spread)
    return replace(job, traces=tuple(done[id(trace)] for trace in job.traces))


def _communication(traces: list[Trace], key: SecretKey, spread: float) -> tuple[Ints, Floats]:
    """Return the different sizes of communication, ascending, and the factor of each."""
    every = np.concatenate([trace.column("comm_bytes") for trace in traces])
    known, count = np.unique(every, return_counts=True)
    factor = _factors("communication", known, key, spread)
    weight = np.where(known > 0, known, 0) * count
    if weight.any():  # the volume of all of it stays nearly what it was
        factor /= (weight * factor).sum() / weight.sum()
        factor *= 1 + _OF_TOTAL * spread * key.unit("volume")
    return known, factor


def _factors(what: str, values: Ints, key: SecretKey, spread: float) -> Floats:
    return np.array([1 + spread * key.unit(what, str(value)) for value in values.tolist()])


def _moved(trace: Trace, comm_bytes: Ints, key: SecretKey, spread: float) -> Trace:
    given = trace.attributes
    node, number, shapes = distinct_values(given, _SHAPE)
    new = [_shape(shape, key, spread) for shape in shapes]
    ratio = np.ones(trace.nodes.height)
    ratios = [
        np.prod(moved, dtype=float) / max(np.prod(shape, dtype=float), 1)
        for moved, shape in zip(new, shapes, strict=True)
    ]
    ratio[node] = np.array(ratios)[number] if ratios else 1.0
    of_shape = np.isin(np.arange(trace.nodes.height), node)
    columns = {"comm_bytes": pl.Series(comm_bytes, dtype=NODES.dtypes["comm_bytes"])}
    for name in ("flops", "bytes"):
        value = trace.column(name)
        known, place = np.unique(value, return_inverse=True)
        own = _factors(name, known, key, spread)[place]
        # bytes of a product grow with its sides, of which there are three
        power = 1.0 if name == "flops" else 2 / 3
        own = np.where(of_shape, ratio**power, own)
        moved = np.where(value > 0, np.rint(value * own), value).astype(np.int64)
        columns[name] = pl.Series(moved)
    others = given.filtered(np.array(given.names, dtype=object)[given.name] != _SHAPE)
    packed = [pack_list("int64_list", shape) for shape in new]
    return replace(
        trace, nodes=trace.nodes.with_columns(**columns),
        given_attributes=_joined(others, spans(_SHAPE, node, number, packed)),
    )  # fmt: skip


def _joined(*parts: Attributes) -> Attributes:
    return combined([Part(part) for part in parts])


def _shape(shape: list[int], key: SecretKey, spread: float) -> list[int]:
    """Move the sides of a matrix product: equal sides alike, by multiples of a tile's part."""
    return [
        side if side < _FEW
        else max(round(side * (1 + spread * key.unit("side", str(side))) / _TILE) * _TILE, _TILE)
        for side in shape
    ]  # fmt: skip
