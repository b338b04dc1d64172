"""Small valid files, one or more of each format that is read; with what they hold."""

from __future__ import annotations

import gzip
import json
import pickle
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import nadi
from nadi.files.registry import format_named
from nadi.trace.protobuf_values import LIST_TYPES, SCALAR_TYPES
from tests.conftest import DEMO
from tests.formats.foreign_files import (
    memory_snapshot,
    nsight_export,
    pftrace,
    rocprof_object,
    xplane,
)
from tests.reference.chakra_messages import (
    AttributeProto,
    GlobalMetadata,
    IOInfo,
    Node,
    write_messages,
)

__all__ = ["Sample", "can_read", "device_object", "host_object", "linked_object", "samples"]


@dataclass(frozen=True)
class Sample:
    """A valid file.

    Attributes
    ----------
    name
        What tests call it.
    format
        Its format's name, as the registry has it.
    suffix
        Of the file.
    content
        Its bytes.
    num_nodes
        How many nodes it has.
    """

    name: str
    format: str
    suffix: str
    content: bytes
    num_nodes: int


# operations of the recording that between them have tensors, lists of tensors, scalars, texts
_HOST_NAMES = (
    "[pytorch|profiler|execution_trace|process]", "[pytorch|profiler|execution_trace|thread]",
    "## process_group:init ##", "aten::where", "c10d::allreduce_",
)  # fmt: skip


def _demo(name: str) -> Any:
    return json.loads(gzip.decompress((DEMO / f"{name}_0.json.gz").read_bytes()))


@cache
def _host_text() -> str:
    host = _demo("host")
    chosen = []
    for name in _HOST_NAMES:
        chosen += [node for node in host["nodes"] if node["name"] == name][:1]
    host["nodes"] = chosen
    return json.dumps(host)


def host_object() -> Any:
    """Give a host trace of five nodes, as Python holds its JSON."""
    return json.loads(_host_text())


def device_object() -> Any:
    """Give a device trace of nine operations and five other events."""
    return json.loads(_device_text())


@cache
def _device_text() -> str:
    device = _demo("device")
    events = device["traceEvents"]
    chosen = [
        next(event for event in events if (event["ph"], event.get("cat")) == key)
        for key in (("M", None), ("X", "user_annotation"), ("X", "cpu_op"), ("s", "fwdbwd"),
                    ("f", "fwdbwd"), ("X", "Trace"), ("i", None))
    ]  # fmt: skip
    for number, (cat, name, args) in enumerate((
        ("cpu_op", "nccl:all_reduce", {"Record function id": 5, "External id": 9}),
        ("cuda_runtime", "cudaLaunchKernel", {"correlation": 3, "External id": 9}),
        ("cuda_driver", "cuLaunchKernel", {"correlation": 4}),
        ("kernel", "ncclDevKernel_AllReduce_Sum_f32(x*)", {
            "correlation": 3, "stream": 20, "device": 0, "External id": 9, "queued": 0,
            "Collective name": "allreduce", "In msg nelems": 1024, "dtype": "Float",
            "Process Group Name": "1", "grid": [2, 1, 1], "blocks per SM": 0.25}),
        ("gpu_memcpy", "Memcpy HtoD \\ \"é\" \u65e5\U0001f600", {
            "correlation": 4, "stream": 7, "device": 0, "bytes": 4096}),
        ("python_function", "train.py(3): step", None),
        ("cuda_sync", "Stream Sync", {"stream": 7, "device": 0}),
    )):  # fmt: skip
        event = {"ph": "X", "cat": cat, "name": name, "pid": 12611, "tid": 12611,
                 "ts": 4394893439474.026 + 3 * number, "dur": 2.5}  # fmt: skip
        chosen.append(event if args is None else {**event, "args": args})
    device["traceEvents"] = chosen
    return json.dumps(device)


def linked_object() -> Any:
    """Give a host trace with times and the work of a device, as chakra_trace_link writes it."""
    linked = host_object()
    for number, node in enumerate(linked["nodes"]):
        node.update(ts=1000.5 + 10 * number, inclusive_dur=8, exclusive_dur=7.25)
    linked["nodes"][-1]["inter_thread_dep"] = linked["nodes"][-2]["id"]
    linked["nodes"].append({
        "id": 9000, "name": "ncclDevKernel_AllReduce", "ctrl_deps": linked["nodes"][-1]["id"],
        "cat": "kernel", "ts": 1100, "inclusive_dur": 3, "exclusive_dur": 3, "stream": 20,
        "ph": "X", "args": {"stream": 20, "correlation": 3},
    })  # fmt: skip
    return linked


def _attribute(name: str, kind: str) -> Any:
    proto = AttributeProto(name=name)
    item = kind.removesuffix("_list")
    value = {"string": "é", "bytes": b"\xff\x00", "bool": True, "float": 0.5, "double": -1.25}.get(
        item, 300
    )
    if kind == item:
        setattr(proto, f"{kind}_val", value)
    else:
        getattr(proto, kind).values.extend([value, value])
    return proto


def _chakra() -> bytes:
    """Give an .et with every type of attribute, operands, and dependencies of all kinds."""
    metadata = GlobalMetadata(version="0.0.4")
    for name, kind, value in (
        ("schema", "string", "1.0.2-chakra.0.0.4"), ("pid", "uint64", 7), ("rank", "int64", 0),
        ("process_groups", "string", '[{"pg_name": "0", "ranks": [0, 1]}]'),
    ):  # fmt: skip
        metadata.attr.append(AttributeProto(name=name, **{f"{kind}_val": value}))
    nodes = [Node(id=number, name=f"op {number % 3}", type=4) for number in (1, 2, 3, 5, 8)]
    nodes[0].attr.extend(_attribute(kind, kind) for kind in (*SCALAR_TYPES, *LIST_TYPES))
    nodes[0].attr[0].doc_string = "a comment"
    for number, waits in ((1, [1]), (2, [1, 2]), (3, [2, 77]), (4, [5, 5, 3])):
        nodes[number].data_deps.extend(waits)
        nodes[number].ctrl_deps.extend(waits[:1])
        nodes[number].start_time_micros = 1000 * number
        nodes[number].duration_micros = 500
    nodes[1].inputs.CopyFrom(IOInfo(
        values="[[21, 23, 0, 32768, 4, 'cpu'], [1, 2.5, None], True, 'a\"b']",
        shapes="[[4, 64, 128], [[], [], []], [], []]",
        types="['Tensor(float)', 'GenericList[Int,Double,None]', 'Bool', 'String']",
    ))  # fmt: skip
    nodes[1].outputs.CopyFrom(IOInfo(values="[]", shapes="[]", types="[]"))
    for name, kind, value in (
        ("is_cpu_op", "bool", False), ("comm_type", "int64", 0), ("comm_size", "int64", 4096),
        ("pg_name", "string", "0"), ("stream", "int64", 20), ("exclusive_ns", "int64", 400),
    ):  # fmt: skip
        nodes[3].attr.append(AttributeProto(name=name, **{f"{kind}_val": value}))
    nodes[3].type = 7
    return write_messages(metadata, nodes)


_LAYER = "{} -1 {} ALLGATHER 10 2 ALLREDUCE 20 3 NONE 0 {}"


def _text(header: str, names: tuple[str, ...], last: str = "4096") -> bytes:
    lines = [header, str(len(names))]
    lines += [_LAYER.format(name, 5 * row + 1, last) for row, name in enumerate(names)]
    return "\n".join(lines).encode() + b"\n"


def _samples() -> list[Sample]:
    host, device = json.dumps(host_object()).encode(), json.dumps(device_object()).encode()
    linked = json.dumps(linked_object()).encode()
    chakra = _chakra()
    samples = [
        Sample("host", "pytorch", ".json", host, 5),
        Sample("host-gzip", "pytorch", ".json.gz", gzip.compress(host, mtime=0), 5),
        Sample("host-spaced", "pytorch", ".json", json.dumps(
            {"schema": "1.0.1", "nodes": [{"id": k, "name": f"é{k}", "parent": 1, "rf_id": k,
                                           "inputs": [1, "a"], "op_schema": "x"}
                                          for k in (1, 3, 2)]},
            indent=1, ensure_ascii=False,
        ).encode(), 3),
        Sample("device", "kineto", ".json", device, 9),
        Sample("linked", "pytorch", ".json", linked, 6),
        Sample("chakra", "chakra", ".et", chakra, 5),
        Sample("chakra-gzip", "chakra", ".et.gz", gzip.compress(chakra, mtime=0), 5),
        Sample("text", "astra-text", ".txt", _text("DATA", ("a", "b", "c")), 8),
        Sample("text-transformer", "astra-text", ".txt", _text(
            "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 4 checkpoints: 2 0 2 "
            "checkpoint_initiates: 1 2", ("a", "b", "c")), 15),
        Sample("text-customized", "astra-text", ".txt", _text(
            "HYBRID_CUSTOMIZED", ("a", "b"), "0 HYBRID_DLRM_ENHANCED"), 6),
        Sample("nsight", "nsight", ".sqlite", nsight_export(), 8),
        Sample("rocprof", "rocprof", ".json", json.dumps(rocprof_object()).encode(), 4),
        Sample("xplane", "xplane", ".xplane.pb", xplane(), 7),
        Sample("snapshot", "memory-snapshot", ".pickle", pickle.dumps(memory_snapshot(), 4), 2),
        Sample("pftrace", "perfetto", ".pftrace", pftrace(), 5),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.et"
        path.write_bytes(chakra)
        trace = nadi.read(path)
        nadi.write(trace, path.with_name("a.nadi"))
        samples.append(Sample("nadi", "nadi", ".nadi", path.with_name("a.nadi").read_bytes(), 5))
        if can_read("chakra-json"):
            samples += _chakra_json(trace, path.with_name("a.json"))
    return samples


def can_read(format_name: str) -> bool:
    """Tell whether there is a reader of a format yet."""
    module, _, function = format_named(format_name).decoder.rpartition(".")
    return hasattr(import_module(f"nadi.files.{module}"), function)


def _chakra_json(trace: nadi.Trace, path: Path) -> list[Sample]:
    """Give Chakra's JSON in its three shapes."""
    nadi.write(trace, path, to="chakra-json")
    whole = path.read_bytes()
    content = json.loads(whole)
    # the second shape is what Chakra's own program writes: object after object
    pieces = [content["globalMetadata"], *content["nodes"]]
    objects = "\n".join(json.dumps(piece, indent=2) for piece in pieces)
    feeder = json.dumps({"workload_graph": [
        {"Id": number, "Name": f"n{number}", "NodeType": 4 + number % 4, "data_deps": waits,
         "runtime": 5, "is_cpu_op": number == 1, "comm_type": 0, "comm_size": 64}
        for number, waits in ((1, []), (2, [1]), (4, [1, 2]))
    ]})  # fmt: skip
    return [
        Sample("chakra-json", "chakra-json", ".json", whole, 5),
        Sample("chakra-json-objects", "chakra-json", ".json", objects.encode(), 5),
        Sample("chakra-json-feeder", "chakra-json", ".json", feeder.encode(), 3),
    ]


@cache
def samples() -> dict[str, Sample]:
    """Give every sample by its name."""
    return {sample.name: sample for sample in _samples()}
