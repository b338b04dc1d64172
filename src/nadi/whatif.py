"""What-if: the same job with some of its operations changed."""

from __future__ import annotations

import difflib
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nadi.errors import UsageError
from nadi.graph import EdgeKind, EventGraph
from nadi.units import format_count

__all__ = ["Scale", "apply_change", "parse_change"]

_FORM = "scale REGEX FACTOR, for example: scale 'ncclDevKernel.*' 0.5"
_MAX_NAMES_SHOWN = 3
_LONGEST_NS = 2**62


@dataclass(frozen=True)
class Scale:
    """Multiply the time of operations whose name matches ``pattern`` by ``factor``.

    A host operation stands for all that its thread does from its start to its end, a
    device operation for itself. Overheads and delays stay as they are.
    """

    pattern: re.Pattern[str]
    factor: float

    def __str__(self) -> str:
        factor = repr(self.factor).removesuffix(".0")
        return f"scale {self.pattern.pattern} {factor}"


def parse_change(text: str) -> Scale:
    """Read a change as it is written on the command line.

    Raises
    ------
    UsageError
        If it is not of a known form.
    """
    where = f"--what-if {text!r}"
    words = text.split()
    if len(words) < 3 or words[0] != "scale":
        raise UsageError(where, "is not a known change", f"write {_FORM}")
    try:
        factor = float(words[-1])
    except ValueError:
        raise UsageError(where, f"expected a number, got {words[-1]!r}", f"write {_FORM}") from None
    if not (math.isfinite(factor) and factor >= 0):
        raise UsageError(where, f"the factor {words[-1]} is not 0 or more", f"write {_FORM}")
    expression = text.strip().removeprefix("scale").strip()[: -len(words[-1])].strip()
    try:
        with warnings.catch_warnings(action="ignore"):  # of syntax that may change one day
            pattern = re.compile(_unquote(expression))
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(
            where, f"{expression!r} is not a regular expression ({error})", f"write {_FORM}"
        ) from None
    return Scale(pattern, factor)


def apply_change(graph: EventGraph, change: Scale, since: int = 0) -> EventGraph:
    """Give the graph with the change made; the graph given stays as it is.

    Parameters
    ----------
    since
        Measured time in ns since the job's origin before which nothing changes. With the
        start of a window it makes the question one about that window alone: its start
        stays, so less work never makes it longer.

    Raises
    ------
    UsageError
        If no operation matches; the message names similar ones.
    """
    scaled = _covered(graph, _matching(graph, change.pattern))
    is_later = graph.time[graph.in_src] >= since
    edges = np.flatnonzero(
        (graph.edge_op >= 0) & scaled[graph.edge_op] & _is_work(graph) & is_later
    )
    weight = graph.weight.copy()
    if float(weight[edges].sum()) * change.factor >= _LONGEST_NS:
        raise UsageError(
            f"--what-if '{change}'", "the step would take over a century", "give a smaller factor"
        )
    weight[edges] = np.rint(weight[edges] * change.factor).astype(np.int64)
    return graph.with_weights(weight)


def _unquote(expression: str) -> str:
    if len(expression) >= 2 and expression[0] == expression[-1] and expression[0] in "'\"":
        return expression[1:-1]
    return expression


def _matching(graph: EventGraph, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
    names = graph.op_names
    unique = names.unique().to_list()
    chosen = [name for name in unique if pattern.search(name)]
    if not chosen:
        raise UsageError(
            f"--what-if {pattern.pattern!r}",
            f"matches none of the {format_count(len(unique))} operation names",
            _suggest(pattern.pattern, unique),
        )
    return names.is_in(chosen).to_numpy()


def _suggest(expression: str, names: Sequence[str]) -> str:
    lowered = {name.lower(): name for name in names}
    wanted = expression.lower()
    near = [name for low, name in lowered.items() if wanted in low]
    near += [lowered[n] for n in difflib.get_close_matches(wanted, lowered, n=_MAX_NAMES_SHOWN)]
    shown = [name if len(name) <= 60 else name[:57] + "..." for name in near[:_MAX_NAMES_SHOWN]]
    return f"did you mean {', '.join(shown)}" if shown else "nadi run lists the heaviest ones"


def _covered(graph: EventGraph, matched: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Add the operations that lie inside a matched one on its thread."""
    has_parent = graph.op_parent >= 0
    covered = matched
    while True:
        wider = covered | (has_parent & covered[graph.op_parent])
        if (wider == covered).all():
            return covered
        covered = wider


def _is_work(graph: EventGraph) -> npt.NDArray[np.bool_]:
    """Tell which edges are time spent by an operation, and not an overhead between two."""
    work = (EdgeKind.HOST_OP, EdgeKind.HOST_GAP, EdgeKind.KERNEL, EdgeKind.COMMUNICATION)
    return np.isin(graph.edge_kind, work)
