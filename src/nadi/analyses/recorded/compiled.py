"""Kernels that torch.compile generated: what each fuses, and which region it is of."""

import re
from pathlib import PurePath

import msgspec
import numpy as np
import polars as pl

from nadi.analyses.hta.recorded_fields import trace_name
from nadi.analyses.recorded.events import RankEvents, per_rank
from nadi.errors import InputError
from nadi.trace.arrays import Bools, Ints

# the names that torch/_inductor gives: graph_0_cpp_fused_add_1, triton_poi_fused_add_relu_0; the
# profiler cuts long ones
_KERNEL = r"^(?:graph_\d+_)?(?:triton_(?:poi|per|red|tem|for)|cpp)_fused"
_NAME = re.compile(
    r"^(?:graph_\d+_)?(triton|cpp)_(?:(poi|per|red|tem|for)_)?fused(?:_(?!\d+$)(.*?))?(?:_\d+)?$"
)
_FORMS = {
    "poi": "pointwise", "per": "persistent reduction", "red": "reduction", "tem": "template",
    "for": "foreach",
}  # fmt: skip
_REGION = r"^Torch-Compiled Region"
_GRAPH = r"^## Call CompiledFxGraph \w+ ##$"


class _Args(msgspec.Struct):
    kernel_file: str = ""


_decoder = msgspec.json.Decoder(_Args)


@per_rank("operators", "host events", uses=("arguments", "launches"))
def compiled_kernels(events: RankEvents) -> pl.DataFrame:
    """Sum the kernels that Inductor generated for Triton or C++, by region and kernel.

    The kernels of a call have the name of the operator that launches them, as older recordings name
    them all ``triton_``. Kernels replayed from graphs are those of the capture.

    Parameters
    ----------
    events
        A job, a trace, or several.

    Returns
    -------
    polars.DataFrame
        A row per region and kernel, the most time first: ``region`` (``Torch-Compiled Region:
        0/1``, frame and compilation; else the key of the compiled graph, as of a backward; empty if
        neither is around it), ``kernel``, ``backend`` (triton or cpp), ``form`` (pointwise,
        reduction, persistent reduction, template, foreach; empty if the name does not say it),
        ``fused`` (the operators of PyTorch in it, joined by ``_`` as Inductor does: a kernel may
        have a part of them), ``file`` (of the generated code; empty if it is not recorded),
        ``count``, ``sum_ns``, ``mean_ns`` and ``percent`` of all device work, or of C++ kernels of
        the time of these. O(events * depth).

    Raises
    ------
    InputError
        If no kernel has such a name.
    """
    names = events.table["name"].cast(pl.String)
    is_call = names.str.contains(_KERNEL).to_numpy() & events.is_of("operator")
    own = events.work[names.gather(events.work).str.contains(_KERNEL).to_numpy()]
    own = own[events.around(events.launcher[own], is_call) < 0]  # without an operator
    calls = np.flatnonzero(is_call)
    rows = np.concatenate([calls, own])
    if not rows.size:
        raise InputError(
            trace_name(events.trace), "no kernel has a name that Inductor gives",
            "compile with torch.compile, and record its operators; C++ kernels have names with "
            "torch._inductor.config.cpp.enable_kernel_profile",
        )  # fmt: skip
    table = pl.DataFrame({
        "region": _regions(events, np.concatenate([calls, events.launcher[own]])),
        **_parts(names.gather(rows).to_list()),
        "file": _files(events, rows),
        "ns": _times(events, is_call, rows),
    })  # fmt: skip
    keys = ("region", "kernel", "backend", "form", "fused", "file")
    device = int(events.column("duration")[events.work].sum())
    whole = device or int(table["ns"].sum())
    return (
        table.group_by(keys).agg(
            count=pl.len().cast(pl.Int64), sum_ns=pl.sum("ns"), mean_ns=pl.mean("ns"),
            percent=100 * pl.sum("ns") / max(whole, 1),
        )
        .sort("sum_ns", "kernel", "region", "file", descending=[True, False, False, False])
    )  # fmt: skip


def _parts(kernels: list[str]) -> dict[str, list[str]]:
    """Return what the names of kernels say."""
    parts = [_NAME.match(one) or ("",) * 4 for one in kernels]
    return {
        "kernel": kernels,
        "backend": [part[1] for part in parts],
        "form": [_FORMS.get(part[2], "") for part in parts],
        "fused": [part[3] or "" for part in parts],
    }


def _regions(events: RankEvents, rows: Ints) -> list[str]:
    """Return the compiled region around each row, or the compiled graph; empty without one."""
    names = events.table["name"].cast(pl.String)
    is_marked = events.is_of("operator", "annotation")
    found = np.full(rows.size, -1, dtype=np.int64)
    for pattern in (_GRAPH, _REGION):
        around = events.around(rows, is_marked & names.str.contains(pattern).to_numpy())
        found = np.where(around >= 0, around, found)
    named = names.str.replace(r"^## Call (.*) ##$", "$1").to_list()
    return [named[row] if row >= 0 else "" for row in found.tolist()]


def _times(events: RankEvents, is_call: Bools, rows: Ints) -> Ints:
    """Return the device time of each row, or on hosts alone the time of the call; ns."""
    duration = events.column("duration")
    if not events.work.size:
        return duration[rows]
    time = np.zeros(events.table.height, dtype=np.int64)
    around = events.around(events.launcher[events.work], is_call)
    np.add.at(time, around[around >= 0], duration[events.work[around >= 0]])
    is_work = np.zeros(events.table.height, dtype=np.bool_)
    is_work[events.work] = True
    return np.where(is_work, duration, time)[rows]


def _files(events: RankEvents, rows: Ints) -> list[str]:
    """Return the name of the file with the code of each row; empty where it is not recorded."""
    attributes = events.trace.attributes
    args = attributes.rows_named("args")
    place = np.full(events.trace.nodes.height, -1, dtype=np.int64)
    place[attributes.node[args]] = args
    files = []
    for at in place[rows if events.node is None else events.node[rows]].tolist():
        content = attributes.span(at) if at >= 0 else b""
        try:
            file = _decoder.decode(content).kernel_file if b'"kernel_file"' in content else ""
        except (msgspec.DecodeError, UnicodeDecodeError):
            file = ""
        files.append(PurePath(file).name)
    return files
