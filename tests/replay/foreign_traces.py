"""Host traces as anyone may write them: calls with any operator, any schema and any arguments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Given", "float_tensor", "index_tensor", "write_calls"]

_ITEM = {"float": 4, "long int": 8, "bool": 1, "double": 8}


class Given(NamedTuple):
    """An argument as a trace states it: value, shape, type and strides."""

    value: Any
    kind: str
    shape: Any = ()
    strides: Any = ()


def float_tensor(storage: int, *shape: int, **more: Any) -> Given:
    """Return a tensor in the memory of a number."""
    return _tensor(storage, shape, "float", **more)


def index_tensor(storage: int, *shape: int, **more: Any) -> Given:
    """Return a tensor of indices in the memory of a number."""
    return _tensor(storage, shape, "long int", **more)


def _tensor(
    storage: int, shape: Sequence[int], dtype: str, *, strides: Sequence[int] | None = None,
    offset: int = 0, number: int = 0,
) -> Given:  # fmt: skip
    steps = [prod(shape[k + 1 :]) for k in range(len(shape))] if strides is None else strides
    value = [number or 1000 + storage, storage, offset, prod(shape), _ITEM[dtype], "cpu"]
    return Given(value, f"Tensor({dtype})", list(shape), list(steps))


def _plain(value: Any) -> Given:
    if isinstance(value, Given):
        return value
    if isinstance(value, list):
        inner = [_plain(one) for one in value]
        kinds = ",".join(one.kind for one in inner)
        return Given([one.value for one in inner], f"GenericList[{kinds}]",
                     [one.shape for one in inner], [one.strides for one in inner])  # fmt: skip
    names = {bool: "Bool", int: "Int", float: "Double", str: "String", type(None): "None"}
    return Given("<None>" if value is None else value, names[type(value)], [], [])


def _side(arguments: Sequence[Any]) -> dict[str, Any]:
    given = [_plain(one) for one in arguments]
    return {
        "values": [one.value for one in given], "shapes": [one.shape for one in given],
        "types": [one.kind for one in given], "strides": [one.strides for one in given],
    }  # fmt: skip


def write_calls(folder: Path, calls: Sequence[tuple[str, Sequence[Any], Sequence[Any]]]) -> Path:
    """Write a pair of traces of calls: schemas, inputs and outputs; return the folder.

    The device trace has a time for each call.
    """
    events: list[dict[str, Any]] = []
    nodes = [
        {"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 1,
         "inputs": _side([]), "outputs": _side([]), "attrs": _attributes("", 0)},
        {"id": 2, "name": "[pytorch|profiler|execution_trace|thread]", "ctrl_deps": 1,
         "inputs": _side([]), "outputs": _side([]), "attrs": _attributes("", 0)},
    ]  # fmt: skip
    for number, (schema, inputs, outputs) in enumerate(calls):
        name = schema.partition("(")[0].partition(".")[0]
        nodes.append({
            "id": 3 + number, "name": name, "ctrl_deps": 2, "inputs": _side(inputs),
            "outputs": _side(outputs), "attrs": _attributes(schema, number + 1),
        })  # fmt: skip
        events.append({
            "ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 10 * number + 1,
            "dur": 5, "args": {"External id": number + 1, "Record function id": number + 1},
        })  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    whole = {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "time": "2026-01-01 00:00:00",
             "start_ts": 1, "finish_ts": 2, "nodes": nodes}  # fmt: skip
    (folder / "host_0.json").write_text(json.dumps(whole))
    device = {"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": events}
    (folder / "device_0.json").write_text(json.dumps(device))
    return folder


def _attributes(schema: str, number: int) -> list[dict[str, Any]]:
    values = {"rf_id": number, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1, "fw_tid": 0}
    found: list[dict[str, Any]] = [
        {"name": name, "type": "int64" if name == "seq_id" else "uint64", "value": value}
        for name, value in values.items()
    ]
    texts = {"op_schema": schema, "kernel_backend": "", "kernel_file": "", "tensor_range": ""}
    return found + [{"name": name, "type": "string", "value": value}
                    for name, value in texts.items()]  # fmt: skip
