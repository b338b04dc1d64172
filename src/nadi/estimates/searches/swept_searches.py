"""The fastest execution at each point of one or two axes."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

import msgspec
import polars as pl

from nadi.errors import Parameter, UsageError
from nadi.estimates.calculon.rules import DEFAULT, EstimateRules
from nadi.estimates.execution import Execution
from nadi.estimates.search_layouts import search_space
from nadi.estimates.search_results import SearchResult
from nadi.estimates.searches.search import search
from nadi.estimates.stated_files import Described
from nadi.estimates.sweep_axes import SweepAxis, num_points, parse_axes
from nadi.estimates.sweeps import axis_columns, described_at

_NUMBERS = ("num_procs", "batch_size")  # which a search has as numbers of its own


class SweptSearch(NamedTuple):
    """The results of searches at points.

    Attributes
    ----------
    axes
        The fields that vary; points are all combinations of their values, the last axis fastest.
    results
        Of each point, with the fastest execution that is possible.
    """

    axes: tuple[SweepAxis, ...]
    results: tuple[SearchResult, ...]

    def frame(self) -> pl.DataFrame:
        """Give a row per point: the axes, the counts, and the fastest execution, or nulls."""
        rows = [
            {"executions": one.num_executions, "feasible": one.num_feasible}
            | (_row(one) if one.best else {})
            for one in self.results
        ]
        schema: dict[str, Any] = {"executions": pl.Int64, "feasible": pl.Int64}
        schema |= dict.fromkeys(_FIGURES, pl.Float64)
        names = [
            one for one in Execution.__struct_fields__ if one not in dict(axis_columns(self.axes))
        ]
        told: list[str | tuple[str, Any]] = [*schema.items(), *names]
        frame = pl.DataFrame(rows, schema=told, infer_schema_length=None)
        return pl.DataFrame(axis_columns(self.axes)).hstack(frame)


_FIGURES = ("rate", "seconds", "tier1_bytes", "tier2_bytes", "tier2_bandwidth")


def _row(result: SearchResult) -> dict[str, Any]:
    best = result.best[0]
    figures = {name: getattr(best, name) for name in _FIGURES}
    fields: dict[str, Any] = msgspec.to_builtins(best.execution)
    return figures | fields


def sweep_search(
    described: Described, axes: Sequence[str], given: Mapping[str, Iterable[Any]] | None = None, *,
    round_batch: bool = False, rules: EstimateRules = DEFAULT, executor: Executor | None = None,
) -> SweptSearch:  # fmt: skip
    """Search at all points of axes.

    A field of the execution is not searched, but has the value of the point; ``num_procs`` and
    ``batch_size`` are the numbers of ranks and sequences.

    Parameters
    ----------
    described
        The model and the machine; of its execution, the numbers of ranks and sequences
        (:func:`describe_search`).
    axes
        One or two, such as ``memory.tier2.bandwidth=32,64,128``:
        :func:`nadi.estimates.parse_axes`.
    given, round_batch, rules
        As for :func:`nadi.estimates.search_space`.
    executor
        As for :func:`nadi.estimates.search`.

    Raises
    ------
    UsageError
        If an axis or a space is refused.
    """
    given = dict(given or {})
    read = parse_axes(axes, described, rules)
    for axis in read:
        if axis.owner == "execution" and axis.path[0] in given:
            raise UsageError(
                Parameter("sweep", axis.name), "this field also has values to search",
                "leave out one of them",
            )  # fmt: skip
    results = []
    for point in range(num_points(read)):
        here = described_at(described, read, point)
        swept = {
            str(axis.path[0]): [getattr(here.execution, str(axis.path[0]))]
            for axis in read if axis.owner == "execution" and axis.path[0] not in _NUMBERS
        }  # fmt: skip
        space = search_space(
            here.model, here.machine, here.execution.num_procs, here.execution.batch_size,
            given | swept, round_batch=round_batch, rules=rules,
        )  # fmt: skip
        results.append(search(space, top=1, executor=executor))
    return SweptSearch(read, tuple(results))
