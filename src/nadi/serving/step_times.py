"""How long steps of an engine take, as tables: by tokens, by requests, and by attention."""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import FormatError
from nadi.files.csv_tables import read_table
from nadi.files.files import read_file
from nadi.trace.arrays import Floats

GRAPH_SIZES = (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16))
"""Tokens for which vLLM captures CUDA graphs: a step is padded to the next of them."""

_GRID = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
_FILES = ("dense.csv", "per_sequence.csv", "attention.csv")
_ONCE = ("embedding", "final_layernorm")  # of a step; all else is of each layer
_TWICE = ("layernorm",)  # of a layer
_MOST_CELLS = 1 << 22  # of the grid of attention
_REMEDY = "give a folder with dense.csv, per_sequence.csv and attention.csv"


class StepTimes(NamedTuple):
    """Times of a step in ns; they add up.

    Attributes
    ----------
    tokens, dense
        Points of what goes by tokens, ascending, and the time there: same shape.
    rows, heads
        Points of what goes by requests that get a token, and the time there.
    axes
        Points of attention: tokens of a chunk of a prompt, tokens before it, requests that
        generate, and tokens before each. Each begins with 0.
    attention, crowded
        float64, a dimension for each axis; and the time of a chunk beside many others in one
        kernel, at the first two axes, if that is known to be less.
    graphs
        Whether steps are padded to the sizes of CUDA graphs.
    bound
        Time of ``dense`` that the device's memory bounds, and that of collectives: shape
        (2, points), if it is known.
    experts
        Time of ``dense`` that goes to experts, which all groups of an instance share, and what of
        it the device's memory bounds: shape (2, points), if there are any.
    wires
        ns for which the bytes of a step's collectives keep each link of a rank, at ``tokens``:
        shape (links, points), if there are any.
    """

    tokens: Floats
    dense: Floats
    rows: Floats
    heads: Floats
    axes: tuple[Floats, Floats, Floats, Floats]
    attention: Floats
    graphs: bool = True
    crowded: Floats | None = None
    wires: Floats | None = None
    bound: Floats | None = None
    experts: Floats | None = None

    def by_tokens(self, budget: int) -> Floats:
        """Give times of 0 to ``budget`` tokens, shape (budget + 1, 5).

        The whole, and of it what memory bounds, and collectives: 0 if that is unknown. Then that of
        experts, and what of it memory bounds.
        """
        none = np.zeros((2, self.tokens.size))
        parts = [none if one is None else one for one in (self.bound, self.experts)]
        times = [self._along_tokens(one, budget) for one in (self.dense, *parts[0], *parts[1])]
        return np.stack(times, axis=1)

    def by_links(self, budget: int, links: int) -> Floats:
        """Give for how long 0 to ``budget`` tokens keep links, shape (links, budget + 1)."""
        found = np.zeros((links, budget + 1))
        for row, values in zip(found, () if self.wires is None else self.wires, strict=False):
            row[:] = self._along_tokens(values, budget)
        return found

    def _along_tokens(self, values: Floats, budget: int) -> Floats:
        sizes = np.arange(budget + 1.0)
        times = along(self.tokens, values, padded(sizes) if self.graphs else sizes)
        times[0] = 0.0
        return times

    def by_rows(self, most: int) -> Floats:
        """Give the time of 0 to ``most`` requests that get a token, shape (most + 1,)."""
        times = along(self.rows, self.heads, np.arange(most + 1.0))
        times[0] = 0.0
        return times


def padded(sizes: Floats) -> Floats:
    """Give numbers of tokens as CUDA graphs compute them; what no graph has is not padded."""
    above = np.searchsorted(GRAPH_SIZES, sizes)
    captured = np.append(GRAPH_SIZES, 0)[above]
    found: Floats = np.where(above < len(GRAPH_SIZES), captured, sizes).astype(float)
    return found


def along(points: Floats, values: Floats, where: Floats) -> Floats:
    """Interpolate between points, and go on beyond them along the first and the last two."""
    k = np.clip(np.searchsorted(points, where, side="right") - 1, 0, points.size - 2)
    share = (where - points[k]) / (points[k + 1] - points[k])
    found: Floats = values[k] * (1 - share) + values[k + 1] * share
    return found


def holds_profile(folder: str | Path) -> bool:
    """Tell whether a folder has measured times of layers."""
    return any((Path(folder) / name).exists() for name in _FILES)


def profiled_times(folder: str | Path, layers: int) -> StepTimes:
    """Read times of kernels that were measured, one layer at a time.

    Parameters
    ----------
    folder
        With ``dense.csv`` (layer, tokens, time_us), ``per_sequence.csv`` (layer, sequences,
        time_us) and ``attention.csv`` (prefill_chunk, kv_prefill, n_decode, kv_decode, time_us),
        as LLMServingSim's profiler writes them.
    layers
        Of the model.

    Raises
    ------
    FormatError
        If a file is missing, or is no such table.
    """
    folder = Path(folder)
    dense = _by_layer(folder / "dense.csv", "tokens")
    points, _ = next(iter(dense.values()))
    whole = np.zeros(points.size)
    for name, (at, time) in dense.items():
        if not np.array_equal(at, points):
            raise FormatError(
                str(folder / "dense.csv"),
                f"{name} has other numbers of tokens",
                "profile all alike",
            )
        whole += time * (1 if name in _ONCE else layers * (2 if name in _TWICE else 1))
    heads = _by_layer(folder / "per_sequence.csv", "sequences")
    rows, _ = next(iter(heads.values()))
    of_rows = sum((along(at, time, rows) for at, time in heads.values()), np.zeros(rows.size))
    axes, grid = _grid(folder / "attention.csv")
    return StepTimes(points, whole * 1e3, rows, of_rows * 1e3, axes, grid * layers * 1e3)


def _by_layer(path: Path, sizes: str) -> dict[str, tuple[Floats, Floats]]:
    """Read the sizes and times of each kind of layer, ascending."""
    columns = {"layer": pl.String, sizes: pl.Float64, "time_us": pl.Float64}
    frame = _measured(path, columns)
    found = {}
    for (name,), part in frame.group_by("layer", maintain_order=True):
        ordered = part.unique(sizes).sort(sizes)
        found[str(name)] = ordered[sizes].to_numpy(), ordered["time_us"].to_numpy()
        if ordered.height < 2 or not (ordered["time_us"] > 0).all():
            raise FormatError(
                str(path), f"{name} has fewer than two sizes, or a time of 0", "profile it again"
            )
    if not found:
        raise FormatError(str(path), "has no rows", _REMEDY)
    return found


def _measured(path: Path, columns: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
    """Read sizes and times; raises FormatError if one is missing, infinite or negative."""
    frame = read_table(str(path), read_file(path).content.tobytes(), columns, _REMEDY)
    numbers = frame.select(name for name, kind in columns.items() if kind == pl.Float64)
    is_known = (pl.all().is_finite() & (pl.all() >= 0)).fill_null(value=False)
    if not numbers.select(pl.all_horizontal(is_known).all()).item():
        what = "a size or a time is missing, infinite or negative"
        raise FormatError(str(path), what, "profile it again")
    return frame


def _grid(path: Path) -> tuple[tuple[Floats, Floats, Floats, Floats], Floats]:
    """Read the grid of attention; cells that were not measured are the sum of their parts."""
    frame = _measured(path, dict.fromkeys((*_GRID, "time_us"), pl.Float64))
    axes = [np.unique(np.append(frame[name].to_numpy(), 0.0)) for name in _GRID]
    if any(axis.size < 2 for axis in axes):
        raise FormatError(str(path), "has one size of a kind", "profile several")
    cells = prod(axis.size for axis in axes)
    if cells > _MOST_CELLS:  # a thousand scattered points stand for a million million
        what = f"its sizes make a grid of {cells:,} cells, and at most {_MOST_CELLS:,} are read"
        raise FormatError(str(path), what, "profile fewer sizes of each kind")
    grid = np.full([axis.size for axis in axes], np.nan)
    places = [np.searchsorted(axis, frame[name]) for axis, name in zip(axes, _GRID, strict=True)]
    grid[tuple(places)] = frame["time_us"].to_numpy()
    # without a chunk, nothing is before it; without requests that generate, nothing before them
    grid[0, 0, 0, :] = 0.0
    grid[0, 0, :, 0] = np.where(np.isnan(grid[0, 0, :, 0]), grid[0, 0, :, 1], grid[0, 0, :, 0])
    grid[0, :] = grid[0, :1]
    grid[:, :, 0, :] = grid[:, :, 0, :1]
    grid[..., 0] = np.where(np.isnan(grid[..., 0]), grid[..., 1], grid[..., 0])
    alone = grid[:, :, :1, :1] + grid[:1, :1, :, :]
    grid = np.where(np.isnan(grid), alone, grid)
    if np.isnan(grid).any():
        raise FormatError(
            str(path), "lacks chunks alone, or requests that generate alone", "profile both"
        )
    first, second, third, fourth = axes
    return (first, second, third, fourth), grid
