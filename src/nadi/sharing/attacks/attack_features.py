"""What an attacker sees of a job, as numbers: operation mix, shapes, sequences and times.

Durations of products and the curves of their device tell of a size that was moved.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

import numpy as np
import polars as pl

from nadi.sharing.obfuscation.private_job import class_word
from nadi.sharing.obfuscation.product_numbers import LEAST_MOVED, MOST_MOVED
from nadi.sharing.obfuscation.renamed_traces import described_operations
from nadi.systems.device import Device
from nadi.systems.prices.price_list import price
from nadi.systems.prices.traced_operations import distinct_values, stated_operations
from nadi.trace.arrays import Floats, Ints
from nadi.trace.operations import Operations
from nadi.trace.rows import number_rows
from nadi.trace.trace import Job, Trace

_PSEUDONYM = re.compile(r"(.*)_[0-9a-f]{16}")
_WORDS, _SEQUENCES, _SIDES = 64, 256, 128
_PER_OCTAVE = 2
_OCTAVES = 48
_RATIOS = 12  # octaves below and above the median


class Seen(NamedTuple):
    """What is seen of a job; every array sums up to 1, or is empty."""

    mix: Floats  # float64, shape (64,): nodes by hashed class, kind of communication included
    # float64: sizes of communication, FLOPs and bytes by half octaves, and sides of products
    shapes: Floats
    # float64, shape (256,): hashed pairs and triples of classes that follow each other
    sequences: Floats
    # float64: durations by half octaves from their median, and shares of time by class
    timing: Floats
    # float64, shape (6,): log2 of the computing time in ns, of the bytes communicated and of the
    # number of nodes of a trace; of the number of ranks and of different traces; and of bytes per
    # ns. Attacks on volume use it, identification does not.
    scale: Floats
    sides: dict[int, int]  # the sides of matrix products, each with how often it occurs
    # of each different product: its sides, FLOPs and bytes
    products: tuple[tuple[tuple[int, ...], int, int], ...]
    timed: TimedProducts
    layers: int  # the number of layers that nodes state, 0 for none

    @property
    def vector(self) -> Floats:
        """All that identification uses, weighted alike; square roots make it Hellinger's."""
        parts = [self.mix, self.shapes, self.sequences, self.timing]
        return np.asarray(np.sqrt(np.concatenate(parts)))


def seen_of(job: Job) -> Seen:
    """Return what an attacker sees of a job. O(nodes)."""
    traces = list({id(trace): trace for trace in job.traces}.values())
    words = [_words(trace) for trace in traces]
    sides: dict[int, int] = {}
    for trace in traces:
        for side, count in _sides(trace).items():
            sides[side] = sides.get(side, 0) + count
    column = {
        name: np.concatenate([trace.column(name) for trace in traces])
        for name in ("comm_bytes", "flops", "bytes", "duration", "layer")
    }
    word = np.concatenate(words)
    time = np.maximum(column["duration"], 0)
    shapes = [_octaves(column[name]) for name in ("comm_bytes", "flops", "bytes")]
    hashed = _histogram(
        np.array(list(sides), dtype=np.int64) % _SIDES, _SIDES,
        np.array(list(sides.values()), dtype=float),
    )  # fmt: skip
    volume = np.maximum(column["comm_bytes"], 0).sum()
    scale = np.array([
        time.sum() / len(traces), volume / len(traces), word.size / len(traces), len(job.traces),
        len(traces), 1 + volume / max(int(time.sum()), 1),
    ])  # fmt: skip
    return Seen(
        mix=_histogram(word, _WORDS),
        shapes=np.concatenate([*shapes, hashed]),
        sequences=_histogram(np.concatenate([_sequences(one) for one in words]), _SEQUENCES),
        timing=np.concatenate([_ratios(time), _histogram(word, _WORDS, time.astype(float))]),
        scale=np.log2(np.maximum(scale, 1.0)),
        sides=sides,
        products=tuple(sorted({one for trace in traces for one in _products(trace)})),
        timed=timed_products(traces),
        layers=int(column["layer"].max(initial=-1)) + 1,
    )


def _words(trace: Trace) -> Ints:
    """Return the hashed class of each node."""
    described = described_operations(trace)
    known = described.unique(maintain_order=True)
    hashed = [
        crc32(_word(*row).encode()) % _WORDS
        for row in known.select("name", "category", "comm_type", "op_class").iter_rows()
    ]
    numbered = known.with_columns(word=pl.Series(hashed, dtype=pl.Int64))
    return described.join(
        numbered, on=described.columns, how="left", maintain_order="left"
    )["word"].to_numpy()  # fmt: skip


def _word(name: str, category: str, comm_type: str, op_class: str) -> str:
    found = _PSEUDONYM.fullmatch(name)
    return found[1] if found else class_word(name, category, comm_type, op_class)


def _sides(trace: Trace) -> dict[int, int]:
    _, number, shapes = distinct_values(trace.attributes_without_operands, "gemm_shape")
    counts = np.bincount(number, minlength=len(shapes)).tolist() if shapes else []
    found: dict[int, int] = {}
    for shape, count in zip(shapes, counts, strict=True):
        for side in shape if isinstance(shape, list) else ():
            found[side] = found.get(side, 0) + count
    return found


def _products(trace: Trace) -> set[tuple[tuple[int, ...], int, int]]:
    node, number, shapes = distinct_values(trace.attributes_without_operands, "gemm_shape")
    flops, size = trace.column("flops")[node], trace.column("bytes")[node]
    different = np.unique(np.stack([number, flops, size], axis=1), axis=0)
    return {
        (tuple(shapes[of]), *numbers)
        for of, *numbers in different.tolist()
        if isinstance(shapes[of], list)
    }


def _sequences(word: Ints) -> Ints:
    pairs = word[:-1] * 31 + word[1:]
    triples = pairs[:-1] * 37 + word[2:] * 7 + 5
    return np.asarray(np.concatenate([pairs, triples]) * 2654435761 % 2**32 % _SEQUENCES)


def _octaves(values: Ints) -> Floats:
    known = values[values > 0]
    half = (np.log2(known) * _PER_OCTAVE).astype(np.int64)
    return _histogram(np.minimum(half, _OCTAVES * _PER_OCTAVE - 1), _OCTAVES * _PER_OCTAVE)


def _ratios(time: Ints) -> Floats:
    known = time[time > 0]
    if not known.size:
        return np.zeros(2 * _RATIOS * _PER_OCTAVE)
    ratio = np.log2(known / np.median(known)) * _PER_OCTAVE + _RATIOS * _PER_OCTAVE
    size = 2 * _RATIOS * _PER_OCTAVE
    return _histogram(np.clip(ratio, 0, size - 1).astype(np.int64), size)


def _histogram(places: Ints, size: int, weights: Floats | Sequence[float] | None = None) -> Floats:
    found = np.bincount(places, weights, minlength=size).astype(float)
    return np.asarray(found / max(found.sum(), 1e-300))


_SAMPLES = 1000
# how far logarithms of durations may be from the curves, round by round: the fit is coarse first
_NOISE = np.geomspace(0.3, 0.005, 12)
_JITTER = 0.3  # of the noise, by which sides of a sample move between rounds


class TimedProducts(NamedTuple):
    """The different matrix products and attentions of a job, and how long they take."""

    operations: Operations
    duration: Floats  # mean ns, shape (operations,)


def timed_products(traces: list[Trace]) -> TimedProducts:
    """Return the different products that traces state, with the mean of their durations."""
    found = [stated_operations(trace) for trace in traces]
    operations = Operations(*(np.concatenate(columns) for columns in zip(*found, strict=True)))
    duration = np.concatenate([trace.column("duration") for trace in traces])
    rows = np.flatnonzero((operations.shape > 0).all(axis=1) & (duration > 0))
    operations, duration = operations.at(rows), duration[rows]
    number, first = number_rows([*operations[:4], *operations.shape.T])
    mean = np.bincount(number, duration, first.size) / np.maximum(np.bincount(number), 1)
    return TimedProducts(operations.at(first), mean)


def side_by_durations(moved: int, products: TimedProducts, device: Device) -> float:
    """Estimate the true side behind a moved one from durations and the curves of a device.

    Samples of all true sides are weighted by how well the curves then explain the durations, drawn
    again by these weights, and moved a little, with less and less tolerance.

    - ``moved``: A released side.
    - ``products``: Of which it is a side.
    - Returns: O(products * samples).
    """
    released, place = np.unique(products.operations.shape, return_inverse=True)
    place = place.reshape(-1, 4)
    random = np.random.default_rng(0)
    is_free = released >= LEAST_MOVED
    most = np.where(is_free, -np.log(1 - MOST_MOVED), 0)
    start = np.log(released)
    logs = start + most * random.uniform(-1, 1, (_SAMPLES, released.size))
    for noise in _NOISE:
        apart = _misfit(np.rint(np.exp(logs)).astype(np.int64)[:, place], products, device)
        weight = np.exp((apart.min() - apart) / (2 * noise**2))
        drawn = logs[random.choice(_SAMPLES, _SAMPLES, p=weight / weight.sum())]
        logs = drawn + _JITTER * noise * is_free * random.standard_normal(logs.shape)
        logs = np.clip(logs, start - most, start + most)
    return float(np.exp(np.median(drawn[:, released == moved])))


def _misfit(shapes: Ints, products: TimedProducts, device: Device) -> Floats:
    """Return of each sample by how much the curves miss the durations: a sum of squares."""
    stated = products.operations
    work = shapes.prod(axis=2, dtype=float) / stated.shape.prod(axis=1, dtype=float)
    count = shapes.shape[0]
    sampled = Operations(
        np.rint(work * stated.flops).astype(np.int64).ravel(), np.full(work.size, -1),
        np.tile(stated.op_class, count), np.tile(stated.dtype, count), shapes.reshape(-1, 4),
    )  # fmt: skip
    explained = np.maximum(price(sampled, device).duration, 1).reshape(work.shape)
    return np.asarray(np.square(np.log(explained / products.duration)).sum(axis=1))
