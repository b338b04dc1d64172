"""Bytes by element type: each is as large as its name in PyTorch says, however it is spelled."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import nadi

# how torch, record_param_comms (c10::ScalarType) and the profiler's Input type spell it
SPELLED = {
    "uint8": ("Byte", "unsigned char"), "int8": ("Char", "signed char"),
    "int16": ("Short", "short"), "int32": ("Int", "int"), "int64": ("Long", "long"),
    "float16": ("Half", "c10::Half"), "bfloat16": ("BFloat16", "c10::BFloat16"),
    "float32": ("Float", "float"), "float64": ("Double", "double"),
    "complex64": ("ComplexFloat", "c10::complex<float>"),
    "complex128": ("ComplexDouble", "c10::complex<double>"), "bool": ("Bool", "bool"),
    **{name: (name.capitalize(), f"c10::{name.capitalize()}") for name in (
        "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz"
    )},
}  # fmt: skip
ELEMENTS = 1_001


def size_of(torch: str) -> int:
    """Read the bits in a type's name; a bool takes a byte."""
    bits = re.match(r"[a-z]+(\d+)", torch)
    return int(bits[1]) // 8 if bits else 1


def bytes_of(folder: Path, *events: dict[str, object]) -> list[int]:
    """Give the bytes of a communication as linked."""
    path = folder / "device.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    nodes = nadi.recordings.link_device(nadi.read(path)).nodes
    found: list[int] = nodes["comm_bytes"].filter(nodes["comm_type"] != "none").to_list()
    return found


@pytest.mark.parametrize("torch", SPELLED)
def test_communication_states_elements_and_their_type(tmp_path: Path, torch: str) -> None:
    args = {"stream": 7, "device": 0, "In msg nelems": ELEMENTS, "dtype": SPELLED[torch][0]}
    event = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum", "ts": 0, "dur": 9,
             "pid": 0, "tid": 7, "args": args}  # fmt: skip
    assert bytes_of(tmp_path, event) == [ELEMENTS * size_of(torch)]


@pytest.mark.parametrize("torch", SPELLED)
def test_else_the_profiler_noted_the_shapes(tmp_path: Path, torch: str) -> None:
    args = {"Input Dims": [[7, 11, 13], []], "Input type": [SPELLED[torch][1], "Scalar"]}
    event = {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "ts": 0, "dur": 9,
             "pid": 1, "tid": 1, "args": args}  # fmt: skip
    assert bytes_of(tmp_path, event) == [ELEMENTS * size_of(torch)]


def test_a_type_that_nobody_knows_has_no_size(tmp_path: Path) -> None:
    args = {"stream": 7, "device": 0, "In msg nelems": ELEMENTS, "dtype": "Float3"}
    event = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum", "ts": 0, "dur": 9,
             "pid": 0, "tid": 7, "args": args}  # fmt: skip
    assert bytes_of(tmp_path, event) == [-1]
