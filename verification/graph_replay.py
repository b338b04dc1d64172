"""Compare the operators of kernels that graphs replayed with TraceLens' tables of the same files.

    python verification/graph_replay.py [FOLDER ...]

A folder holds recordings, those of their captures, and TraceLens' answers on each in a folder of
its own: ``NAME/ops_summary.csv`` and others, for files with NAME in theirs. TraceLens joins a
recording with its capture, too. Each row of its tables is compared: times within 0.02 us, counts
exactly, also operations and bytes. Where both differ, a rule that is checked says why.
"""

from __future__ import annotations

import ast
import csv
import gzip
import json
import re
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import polars as pl
from _report import Checks, Tally, arguments

import nadi
from nadi import analyses as analyze
from nadi.recordings import load_devices
from nadi.recordings.serving_steps import serving_step
from nadi.trace.work import Operands, Work, work_of

_WITHIN_US = 0.02
_MODULE = re.compile(r"^(nn\.Module: .+)_\d+$")
_PSEUDO = "TraceLens splits an operator by its kernels: the kernels of that name have this time"
_SYNTHETIC = "TraceLens has no row for the call: its kernels of that name have this time"
_STACKS = "TraceLens has a row for each call stack: the sum of these rows is the operator's time"
_HIDDEN = (
    "TraceLens takes an expert to be as wide as the model, and counts what is between products"
)
_BESIDE = "TraceLens leaves out positions, and rows of tables that they choose"
_WORK = ("GEMM", "InferenceAttention", "RMSNorm", "RoPE_fwd", "MoE_unfused")
_SIZE_IN_NAME = re.compile(r"^(sglang_profiler::\w+?)_\d+$")  # which TraceLens leaves out
_Row = dict[str, str]
_Key = tuple[str, str]


def main() -> None:
    """Compare every recording that has answers."""
    checks = Checks()
    for folder in arguments("field/graph_replay"):
        for answers in sorted(path for path in folder.iterdir() if path.is_dir()):
            if not (answers / "ops_summary.csv").exists():
                continue
            files = [path for path in sorted(folder.glob(f"*{answers.name}*.json*"))
                     if "capture" not in path.name]  # fmt: skip
            checks.add(f"{answers.name}: one recording", len(files) == 1)
            compare(checks, answers, files[0])
            unmarked(checks, answers.name, files[0])
    checks.finish()


def unmarked(checks: Checks, name: str, file: Path) -> None:
    """Compare the steps that annotations mark with those of the same recording without them."""
    content = json.loads(gzip.decompress(file.read_bytes()))
    content["traceEvents"] = [
        one for one in content["traceEvents"]
        if "annotation" not in one.get("cat", "") or serving_step(one["name"]) is None
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        stripped = Path(place) / file.name
        stripped.write_bytes(gzip.compress(json.dumps(content).encode(), 1))
        for capture in file.parent.glob(f"*{name}*capture*"):
            (Path(place) / capture.name).symlink_to(capture.resolve())
        told = [
            [step.serving._replace(lengths=None, is_padded=False)
             for step in nadi.run(one).steps if step.serving]
            for one in (file, stripped)
        ]  # fmt: skip
    checks.add(f"{name}: steps without annotations", told[0] == told[1] and bool(told[0]))


def compare(checks: Checks, answers: Path, file: Path) -> None:
    """Compare the tables of one recording."""
    (trace,) = load_devices(file)
    replayed = Joined(analyze.events_of(trace))
    unmatched = trace.issues.filter(pl.col("code").is_in(["graphs.unmatched", "graphs.no-capture"]))
    checks.add(f"{answers.name}: every graph has its capture", unmatched.is_empty())
    name, rows = answers.name, table(answers, "ops_summary")
    checks.add_tally(f"{name}: ops_summary", operators(rows, replayed))
    checks.add_tally(f"{name}: ops_summary_by_category", categories(answers, rows, replayed))
    checks.add_tally(f"{name}: unified_perf_summary", shapes(answers, replayed))
    checks.add_tally(f"{name}: gpu_timeline", timeline(answers, replayed.events))
    checks.add_tally(f"{name}: kernels of torch.compile", generated(rows, replayed.events))
    checks.add_tally(f"{name}: FLOPs and bytes", work(answers, replayed.events))


class Joined:
    """What ran on the device, by operator: arrays of shape (device work,)."""

    def __init__(self, events: analyze.RankEvents) -> None:
        self.events = events
        work = events.work
        self.names = events.table["name"].cast(pl.String).to_list()
        self.kernel = [self.names[row] for row in work.tolist()]
        self.us = events.column("duration")[work] / 1000
        call = events.launcher[work]
        operator = events.around(call, events.is_of("operator"))
        self.row = np.where(operator >= 0, operator, call)
        is_module = events.is_of("python")
        is_module &= events.table["name"].cast(pl.String).str.starts_with("nn.Module: ").to_numpy()
        self.module = [
            _MODULE.sub(r"\1", self.names[row]) if row >= 0 else "NA"
            for row in events.around(call, is_module).tolist()
        ]
        self.around = []
        for row in self.row.tolist():
            chain = []
            while row >= 0:
                chain.append(row)
                row = int(events.parent[row])
            self.around.append(chain)

    def key(self, at: int) -> _Key:
        """Return the operator and the class of the module of a piece of work."""
        return _SIZE_IN_NAME.sub(r"\1", self.names[self.row[at]]), self.module[at]


def table(answers: Path, name: str) -> list[_Row]:
    """Read a table of TraceLens."""
    with (answers / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def operators(rows: list[_Row], replayed: Joined) -> Tally:
    """Compare operators by name and module: their own kernels, and those of operators in them."""
    own, calls = defaultdict(float), defaultdict(set)
    for at, time in enumerate(replayed.us.tolist()):
        own[replayed.key(at)] += time
        calls[replayed.key(at)].add(replayed.row[at])
    subtree = {
        key: sum(time for time, chain in zip(replayed.us, replayed.around, strict=True)
                 if not rows_of.isdisjoint(chain))
        for key, rows_of in calls.items()
    }  # fmt: skip
    tally = Tally()
    for row in rows:
        key = row["name"], row["parent_module"]
        mine = own.pop(key, 0.0), subtree.get(key, 0.0), len(calls.get(key, ()))
        theirs = (float(row["total_direct_kernel_time_sum"]),
                  float(row["total_subtree_kernel_time_sum"]), int(row["Count"]))  # fmt: skip
        tally.add(exact=np.allclose(mine, theirs, rtol=0, atol=_WITHIN_US),
                  detail=f"{key}: {theirs}, Nadi {mine}")  # fmt: skip
    for key, time in own.items():
        tally.add(detail=f"{key}: {time} us are in no row of TraceLens")
    return tally


def categories(answers: Path, rows: list[_Row], replayed: Joined) -> Tally:
    """Compare sums by category and module; the category of an operator is TraceLens'."""
    category = {
        (row["name"], row["parent_module"]): ast.literal_eval(row["Categories"])[0] for row in rows
    }
    own, calls = defaultdict(float), defaultdict(set)
    for at, time in enumerate(replayed.us.tolist()):
        key = category.get(replayed.key(at), ""), replayed.module[at]
        own[key] += time
        calls[key].add(replayed.row[at])
    tally = Tally()
    for row in table(answers, "ops_summary_by_category"):
        key = row["op category"], row["parent_module"]
        theirs = float(row["total_direct_kernel_time_ms"]) * 1000, int(row["Count"])
        mine = own.pop(key, 0.0), len(calls[key])
        tally.add(exact=np.allclose(mine, theirs, rtol=0, atol=_WITHIN_US),
                  detail=f"{key}: {theirs}, Nadi {mine}")  # fmt: skip
    for key in own:
        tally.add(detail=f"{key} is in no row of TraceLens")
    return tally


def shapes(answers: Path, replayed: Joined) -> Tally:
    """Compare times by operator and shape of inputs; the operator may be any around the kernel."""
    events = replayed.events
    args = events.trace.attributes
    dims = {}
    for at in args.rows_named("args").tolist():
        stated = args.python_value(at)
        dims[int(args.node[at])] = _frozen(stated.get("Input Dims", [])) if stated else ()
    rows, theirs = table(answers, "unified_perf_summary"), defaultdict(list)
    for row in rows:
        stated = _frozen(ast.literal_eval(row["Input Dims"])) if row["Input Dims"] else ()
        theirs[row["name"], stated].append(row)
    sums: dict[tuple[str, object], float] = defaultdict(float)
    by_kernel: dict[str, float] = defaultdict(float)
    for time, chain, kernel in zip(replayed.us, replayed.around, replayed.kernel, strict=True):
        by_kernel[kernel] += time
        keys = [(_SIZE_IN_NAME.sub(r"\1", replayed.names[row]), dims.get(row, ())) for row in chain]
        listed = [key for key in keys if key in theirs]  # the outermost has the kernel
        if listed:
            sums[listed[-1]] += time
    tally = Tally()
    for key, same in theirs.items():
        times = [float(row["Kernel Time (µs)_sum"]) for row in same]
        fits = abs(sum(times) - sums[key]) <= _WITHIN_US
        for row, time in zip(same, times, strict=True):
            kernels = set(re.findall(r"'name': '(.*?)', 'stream'", row["kernel_details_summary"]))
            of_kernels = abs(sum(by_kernel[one] for one in kernels) - time) <= _WITHIN_US
            rule = _PSEUDO if key[0].startswith("pseudo_op::") and of_kernels else ""
            rule = _SYNTHETIC if key[0].endswith("(Synthetic Op)") and of_kernels else rule
            tally.add(exact=fits and len(same) == 1, rule=_STACKS if fits else rule,
                      detail=f"{key}: {time}, Nadi {sums[key]}")  # fmt: skip
    return tally


def _frozen(value: object) -> object:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def timeline(answers: Path, events: analyze.RankEvents) -> Tally:
    """Compare the times of the device, of which those that overlap count once."""
    (mine,) = analyze.temporal_breakdown(events).iter_rows(named=True)
    pairs = {
        "busy_time": "busy_ns", "idle_time": "idle_ns", "total_time": "total_ns",
        "computation_time": "computation_ns", "exposed_comm_time": "exposed_communication_ns",
        "exposed_memcpy_time": "exposed_memory_ns", "total_comm_time": "communication_ns",
        "total_memcpy_time": "memory_ns",
    }  # fmt: skip
    tally = Tally()
    for row in table(answers, "gpu_timeline"):
        theirs, own = float(row["time ms"]) * 1000, mine[pairs[row["type"]]] / 1000
        tally.add(exact=abs(theirs - own) <= _WITHIN_US,
                  detail=f"{row['type']}: {theirs} us, Nadi {own}")  # fmt: skip
    return tally


def work(answers: Path, events: analyze.RankEvents) -> Tally:
    """Compare operations and bytes of one call with those that TraceLens states."""
    theirs = defaultdict(list)
    for row in table(answers, "unified_perf_summary"):
        is_known = row["op category"] in _WORK or row["name"].endswith("silu_and_mul")
        if is_known and row["GFLOPS"]:
            theirs[row["name"], row["Input Dims"]].append(row)
    mine = analyze.operator_rates(events).to_dicts()
    tally = Tally()
    experts = [rows[0] for (name, _), rows in theirs.items() if "::moe_" in name]
    if experts:
        tally.add(rule=_HIDDEN if of_experts(experts, mine) else "", detail="experts")
    for (name, dims), rows in theirs.items():
        if "::moe_" in name:
            continue
        us = sum(float(row["Kernel Time (µs)_sum"]) for row in rows)
        count = sum(int(row["operation_count"]) for row in rows)
        same = [one for one in mine if abs(one["sum_ns"] / 1000 - us) <= _WITHIN_US]
        same = [one for one in same if one["count"] == count]
        flops = round(float(rows[0]["GFLOPS"]) * 1e9)
        size = round(float(rows[0]["Data Moved (MB)"]) * 2**20)
        found = [(one["flops"], one["size_bytes"]) for one in same]
        moved = [size_ - rows_beside(one, ast.literal_eval(dims))
                 for one, (_, size_) in zip(same, found, strict=True)]  # fmt: skip
        tally.add(exact=found == [(flops, size)], detail=f"{name} {dims}: {flops, size}, {found}",
                  rule=_BESIDE if [flops] == [one["flops"] for one in same] and moved == [size]
                  else "")  # fmt: skip
    return tally


def generated(rows: list[_Row], events: analyze.RankEvents) -> Tally:
    """Compare kernels that torch.compile generated: calls and time by name."""
    tally, theirs = Tally(), [row for row in rows if row["name"].startswith("triton_")]
    if not theirs:
        return tally
    mine = analyze.compiled_kernels(events).group_by("kernel").agg(pl.sum("count", "sum_ns"))
    found = {name: (count, ns / 1000) for name, count, ns in mine.iter_rows()}
    for row in theirs:
        wanted = int(row["Count"]), float(row["total_direct_kernel_time_sum"])
        own = found.pop(row["name"], (0, 0.0))
        tally.add(exact=np.allclose(own, wanted, rtol=0, atol=_WITHIN_US),
                  detail=f"{row['name']}: {wanted}, Nadi {own}")  # fmt: skip
    for name in found:
        tally.add(detail=f"{name} is in no row of TraceLens")
    return tally


def rows_beside(one: dict[str, object], dims: tuple[tuple[int, ...], ...]) -> int:
    """Return the bytes of positions and of the rows that they choose."""
    if one["class"] == "rotary embedding":
        return 8 * dims[0][0] + 2 * dims[0][0] * dims[4][1]
    return 8 * dims[4][0] if one["class"] == "copy" else 0


def of_experts(rows: list[_Row], mine: list[dict[str, object]]) -> bool:
    """Tell whether experts cost the same once an expert is taken to be as wide as the model."""
    given = ast.literal_eval(rows[0]["perf_params"])
    tokens, width, experts = given["num_tokens"], given["hidden_dim"], given["num_experts"]
    (found,) = [one for one in mine if one["class"] == "mixture of experts"]
    inner = int(str(found["shape"]).split()[-1])

    def of(size: int) -> Work:
        shapes = [(experts, width // 2, 2 * size), (experts, size // 2, width)]
        weights = Operands(shapes, (), (1, 1), ())
        chosen = Operands([(tokens, width), (tokens, given["topk"])], (), (), ())
        routed = Operands([(tokens, width), (tokens, experts)], (2 * tokens * width, 0), (2, 2), (),
                          inner=[("SortTokens", chosen), ("aten::view", weights)])  # fmt: skip
        return work_of("vllm::moe_forward", routed)

    between = 2 * 2 * tokens * given["topk"] * width  # what the first writes and the second reads
    flops = sum(round(float(row["GFLOPS"]) * 1e9) for row in rows)
    size = sum(float(row["Data Moved (MB)"]) * 2**20 for row in rows)
    same = of(width).flops == flops and abs(of(width).bytes + between - size) <= 1
    return same and (of(inner).flops, of(inner).bytes) == (found["flops"], found["size_bytes"])


if __name__ == "__main__":
    main()
