"""Telling formats apart, and files that are no trace."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import nadi
from nadi.files import sniff
from nadi.files.registry import format_named
from nadi.files.trace_files import _top_level_keys
from tests.formats.foreign_files import inspector_log


def test_formats_are_told_by_content(demo_folder: Path) -> None:
    assert sniff(demo_folder / "host_0.json.gz") == format_named("pytorch")
    assert sniff(demo_folder / "device_0.json.gz") == format_named("kineto")


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"id,name\n", gzip.compress(b"hello")])
def test_other_files_are_refused_with_a_reason(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    assert sniff(path) is None
    with pytest.raises(
        nadi.errors.FormatError, match="not a trace in a format that Nadi reads; it reads: "
    ):
        nadi.read(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"schemaVersion": 1, "traceEvents": [', "ends too early"),
        (b'{"schemaVersion": 1, "traceEvents": [}', "not valid JSON"),
        (b'{"schemaVersion": 1}', "traceEvents"),
        (b'{"schemaVersion": 1, "traceEvents": {}}', "expected `array`"),
        (b'{"schema": "1.0.1", "nodes": 3}', "expected `array`"),
        (b'{"schema": "1.0.1", "nodes": [{"id": "x", "name": "a"}]}', r"\$\.nodes\[0\]\.id"),
        (b'{"schema": "1.0.1", "nodes": [{"id": 1, "name": "\xff"}]}', "UTF-8|utf-8"),
    ],
)
def test_broken_json_says_where(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(nadi.errors.FormatError, match=message) as caught:
        nadi.read(path)
    assert str(caught.value).startswith(str(path))


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(nadi.errors.InputError, match="cannot be read"):
        nadi.read(tmp_path)


_JSON = st.recursive(
    st.none() | st.integers() | st.text('a"\\{}[]: ,', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


@given(
    content=st.dictionaries(st.text(max_size=6), _JSON), cut=st.floats(0, 1),
    others=st.sets(st.text(max_size=4)), share=st.floats(0, 1),
)  # fmt: skip
def test_keys_of_the_whole_are_found_and_no_others(
    content: dict[str, Any], cut: float, others: set[str], share: float
) -> None:
    head = json.dumps(content, ensure_ascii=False, indent=1).encode()
    written, inside = (
        {json.dumps(key, ensure_ascii=False)[1:-1] for key in keys} for keys in (content, others)
    )
    asked = set(sorted(written)[: int(share * len(written))]) | inside
    assert _top_level_keys(head, asked) == written & asked
    assert _top_level_keys(head[: int(cut * len(head))], asked) <= written & asked


@pytest.mark.parametrize(
    ("content", "command"),
    [(b"PAR1" + bytes(40), "nadi analyze slowdown"), (inspector_log(), "nadi collective measured"),
     (pickle.dumps({"version": "2.10", "pg_config": {}, "entries": []}, 2), "nadi hang")],
)  # fmt: skip
def test_files_of_other_commands_are_refused_with_the_command(
    tmp_path: Path, content: bytes, command: str
) -> None:
    path = tmp_path / "given"
    path.write_bytes(content)
    with pytest.raises(nadi.errors.FormatError, match=command):
        nadi.run(path)
