"""Compare ``nadi analyze operators`` with ``key_averages()`` of PyTorch's profiler.

    python verification/key_averages.py [part ...]

Part ``live``: programs recorded here, against what the profiler itself says of them. Part
``files``: recordings of others, of which only the file is left: their events are given to the
profiler's own class, which builds its tree and sums. Calls, self and total time on the host and on
the device are compared to the nanosecond, by name and by shape. Needs torch.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from _report import SHARED, Checks, Tally, run_parts

try:
    import torch
    from torch.autograd import DeviceType
    from torch.autograd.profiler_util import EventList, FunctionEvent, _filter_name, _rewrite_name
except ModuleNotFoundError:
    torch = None

import nadi
from nadi import analyses as analyze

_FILES = (
    "traces/gpu_resnet_pair/device.json.gz", "traces/gpu_dlrm8/device_3.json.gz",
    "wild/h100_bert.json.gz", "wild/amd_mi300_bert.json.gz", "wild/deepseek_train_h800.json.gz",
    "wild/torch_compile_rtx3090.json.gz", "wild/stacks_transformer_cuda.json.gz",
)  # fmt: skip
_OUTLIVES = "a call outlives the one around it: PyTorch counts it there wholly or not at all"
_NCCL = "PyTorch counts NCCL's kernels for record_param_comms, Nadi for the range within it"
_HOST = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "python_function")
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_Rows = dict[tuple[str, ...], list[int]]


def live(checks: Checks) -> None:
    """Record a small training program, without and with call stacks."""
    for stacks in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "device.json"
            said = _record(path, stacks)
            compare(checks, f"recorded here{', with stacks' if stacks else ''}", path, said)


def files(checks: Checks) -> None:
    """Give the events of files to the profiler's class."""
    for name in _FILES:
        if (path := SHARED / name).exists():
            compare(checks, name, path, _events(path))


def compare(checks: Checks, name: str, path: Path, said: EventList) -> None:
    """Compare all rows of one recording, by name and by shape."""
    trace = nadi.read(path)
    outlived = _outlived(said)
    has_links = any(one.kernels for one in said)
    compared = 5 if has_links or not any(one.device_type == DeviceType.CUDA for one in said) else 3
    name += "" if compared == 5 else " (calls and host: its kernels name no operators)"
    for by in ("name", "shape"):
        table = analyze.operator_times(trace, by=by)
        ours: _Rows = defaultdict(lambda: [0] * 5)
        for row in table.iter_rows(named=True):
            key = (row["name"], _shape(row.get("shape", "")))
            values = (row["count"], row["self_host_ns"], row["host_ns"],
                      row["self_device_ns"], row["device_ns"])  # fmt: skip
            ours[key] = [a + b for a, b in zip(ours[key], values, strict=True)]
        theirs: _Rows = defaultdict(lambda: [0] * 5)
        for one in said.key_averages(group_by_input_shapes=by == "shape"):
            if one.device_type != DeviceType.CPU:
                continue
            key = (one.key, _shape(str(one.input_shapes or "")))
            times = (one.self_cpu_time_total, one.cpu_time_total, one.self_device_time_total,
                     one.device_time_total)  # fmt: skip
            values = (one.count, *(round(1000 * time) for time in times))
            theirs[key] = [a + b for a, b in zip(theirs[key], values, strict=True)]
        tally = Tally()
        for key in ours.keys() | theirs.keys():
            mine, other = ours.get(key), theirs.get(key)
            mine, other = mine and mine[:compared], other and other[:compared]
            rule = _rule(key[0], mine, other, outlived) if mine and other else ""
            tally.add(exact=mine == other, rule=rule, detail=f"{key}: {mine}, PyTorch {other}")
        checks.add_tally(f"{name}, by {by}", tally)


def _rule(name: str, mine: list[int], other: list[int], outlived: set[str]) -> str:
    """Return the rule by which sums of a name differ; empty if none does."""
    if name in outlived and mine[0] == other[0]:
        return _OUTLIVES
    is_nccl = name == "record_param_comms" or name.startswith("nccl:")
    return _NCCL if is_nccl and mine[:3] == other[:3] else ""


def _shape(text: str) -> str:
    text = text.replace(" ", "")
    return "" if set(text) <= set("[],") else text


def _record(path: Path, stacks: bool) -> EventList:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, with_stack=stacks
    ) as profile:
        for _ in range(3):
            with torch.profiler.record_function("forward"):
                loss = model(torch.randn(16, 32)).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profile.step()
    profile.export_chrome_trace(str(path))
    found = profile.events()
    assert found is not None
    return found


def _events(path: Path) -> EventList:
    """Return the events of a file as the profiler would have them."""
    with gzip.open(path) as file:
        raw = json.load(file)["traceEvents"]
    origin = min(float(one["ts"]) for one in raw if one.get("ph") == "X")
    found: list[FunctionEvent] = []
    frontend: dict[int, FunctionEvent] = {}
    linked: list[tuple[int, FunctionEvent]] = []
    for one in raw:
        category, args = one.get("cat"), one.get("args", {})
        if one.get("ph") != "X" or category not in (*_HOST, *_DEVICE) or _filter_name(one["name"]):
            continue
        start = round((float(one["ts"]) - origin) * 1000) / 1000
        link = int(args.get("External id", args.get("external id", 0)))
        event: Any = FunctionEvent(
            id=link, name=_rewrite_name(one["name"], True), thread=(one["pid"], one["tid"]),
            start_us=start, end_us=round((start + float(one["dur"])) * 1000) / 1000,
            input_shapes=args.get("Input Dims", []), stack=[], use_device="cuda",
            device_type=DeviceType.CUDA if category in _DEVICE else DeviceType.CPU,
            is_user_annotation=category == "user_annotation",
        )  # fmt: skip
        found.append(event)
        if category in ("cpu_op", "user_annotation"):
            frontend.setdefault(link, event)
        elif category in _DEVICE:
            linked.append((link, event))
    for link, event in linked:
        if link in frontend:
            frontend[link].append_kernel(event.name, 0, event.time_range.elapsed_us())
    events = EventList(found, use_device="cuda")
    events._build_tree()
    return events


def _outlived(said: EventList) -> set[str]:
    """Return the names of calls that a call outlives which begins in them, and of those around."""
    found: set[str] = set()
    threads: dict[Any, list[FunctionEvent]] = defaultdict(list)
    for one in said:
        if one.device_type == DeviceType.CPU:
            threads[one.thread].append(one)
    for mine in threads.values():
        open_: list[FunctionEvent] = []
        for one in sorted(mine, key=lambda e: (e.time_range.start, -e.time_range.end)):
            open_ = [other for other in open_ if other.time_range.end > one.time_range.start]
            if any(other.time_range.end < one.time_range.end for other in open_):
                found |= {other.name for other in (*open_, one)}
            open_.append(one)
    return found


if __name__ == "__main__":
    if torch is None:
        print("PyTorch is not installed: nothing is compared\n0 of 0 exact")
    else:
        run_parts({"live": live, "files": files})
