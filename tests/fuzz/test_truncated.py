"""A file that was cut off is refused: a shorter trace in its place would be believed."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

import nadi
from nadi.files.messages import plain_fields
from tests.fuzz.corpus import Sample, samples
from tests.fuzz.mutations import cuts
from tests.fuzz.outcome import check
from tests.reference.chakra_messages import read_messages

SAMPLES = samples()
_LAST_WORD = re.compile(rb"\S*\s*\Z")
_LAST_OBJECT = re.compile(rb"\}\s*\Z")


def may_be_whole(sample: Sample, content: bytes) -> bool:
    """Tell whether a shorter file is one that nothing tells from a whole one.

    Three formats do not say how much follows: messages of an .et stand one after the
    other, as do the objects that Chakra's program writes, and a text ends with a word.
    """
    if not content.strip():
        return False
    if sample.content[len(content) :].strip() == b"" and sample.suffix != ".et":
        return True
    if sample.name == "chakra":
        try:
            read_messages(content)
        except (AssertionError, IndexError):
            return False
        return True
    if sample.name == "chakra-json-objects":
        return _LAST_OBJECT.search(content) is not None
    if sample.name in ("xplane", "pftrace"):  # after any whole packet or plane
        try:
            return len(list(plain_fields(memoryview(content)))) > 0
        except (IndexError, ValueError):
            return False
    if sample.format == "astra-text":
        return len(content) > _LAST_WORD.search(sample.content.rstrip()).start()  # type: ignore
    return False


def check_cut(path: Path, sample: Sample, content: bytes) -> None:
    path.write_bytes(content)
    trace = check(path)
    if trace is None:
        return
    assert may_be_whole(sample, content), f"cut off after {len(content)} bytes"
    if sample.name == "chakra":
        assert trace.nodes.height == len(read_messages(content)[1])
    elif sample.format == "astra-text":
        assert trace.nodes.height == sample.num_nodes


@pytest.mark.parametrize("name", SAMPLES)
def test_whole_files_are_read(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    path = tmp_path / f"whole{sample.suffix}"
    path.write_bytes(sample.content)
    trace = check(path)
    assert trace is not None
    assert trace.nodes.height == sample.num_nodes


@pytest.mark.parametrize("name", SAMPLES)
def test_shorter_files_are_refused(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    path = tmp_path / f"cut{sample.suffix}"
    near_the_end = range(max(len(sample.content) - 20, 0), len(sample.content))
    for size in sorted({*cuts(len(sample.content)), *near_the_end}):
        check_cut(path, sample, sample.content[:size])


@pytest.mark.parametrize("name", [n for n, s in SAMPLES.items() if not s.suffix.endswith(".gz")])
def test_gzip_of_shorter_files_is_refused(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    path = tmp_path / f"cut{sample.suffix}.gz"
    for size in cuts(len(sample.content), 25):
        content = sample.content[:size]
        path.write_bytes(gzip.compress(content, compresslevel=1))
        trace = check(path)
        # Nadi's own file is not compressed as a whole
        assert trace is None or may_be_whole(sample, content)


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        (".json", b'{"schema":"1.0.1","nodes":[{"id":1,"name":"a\\n\\u00e9"}]}'),
        (".json", b'{"traceEvents":[{"ph":"X","cat":"kernel","name":"\xc3\xa9","ts":1,"dur":-0}]}'),
        (".et", b"\x00\x05\x08\x01\x12\x01a"),
        (".txt", b"MICRO\n1\na 0 1 NONE 0 1 NONE 0 1 ALLREDUCE 9 0"),
    ],
    ids=["host", "device", "chakra", "text"],
)
def test_every_byte_of_a_tiny_file_counts(suffix: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"tiny{suffix}"
    path.write_bytes(content)
    whole = check(path)
    assert whole is not None
    assert whole.nodes.height == 1
    for size in range(len(content)):
        path.write_bytes(content[:size])
        trace = check(path)
        # an .et may be without nodes: an empty message, and no more, is one
        assert trace is None or (suffix, size) == (".et", 1), size


def test_gzip_members_are_one_file(tmp_path: Path) -> None:
    sample = SAMPLES["host"]
    half = len(sample.content) // 2
    members = [gzip.compress(sample.content[:half]), gzip.compress(sample.content[half:])]
    path = tmp_path / "two.json.gz"
    path.write_bytes(b"".join(members))
    assert nadi.read(path).nodes.height == sample.num_nodes
    for cut in (len(members[0]), len(members[0]) + 5, len(b"".join(members)) - 1):
        path.write_bytes(b"".join(members)[:cut])
        assert check(path) is None
