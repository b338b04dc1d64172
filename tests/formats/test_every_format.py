"""What every format keeps that is read, of this package or of another: the contract of a reader.

The samples are those of the fuzz targets, which also cut and damage them
(``tests/fuzz/test_truncated.py``, ``tests/fuzz/test_flipped.py``).
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import nadi
from nadi.files import Format, sniff
from nadi.files.files import RawFile
from nadi.files.registry import FORMATS, added_formats, format_named
from nadi.recordings.job_of_files import load_devices
from tests.fuzz.corpus import Sample, samples
from tests.fuzz.test_truncated import may_be_whole

SAMPLES = samples()
READABLE = [one for one in FORMATS if one.decoder]
_WORDS = ("name", "kind", "category", "comm_type")


def _nodes(trace: nadi.Trace) -> pl.DataFrame:
    return trace.nodes.with_columns(pl.col(*_WORDS).cast(pl.String))


def _written(folder: Path, sample: Sample, name: str = "") -> Path:
    path = folder / (name or f"rank0{sample.suffix}")
    path.write_bytes(sample.content)
    return path


@pytest.mark.parametrize("one", READABLE, ids=lambda one: one.name)
def test_a_format_that_is_read_has_a_sample_and_a_name_in_the_documentation(one: Format) -> None:
    assert any(sample.format == one.name for sample in SAMPLES.values())
    assert f"`{one.name}`" in (Path(__file__).parents[2] / "docs/formats.md").read_text()


@pytest.mark.parametrize("name", SAMPLES)
def test_a_format_is_known_by_its_content(name: str, tmp_path: Path) -> None:
    found = sniff(_written(tmp_path, SAMPLES[name], "a.bin"))
    assert found is not None
    assert found.name == SAMPLES[name].format


@pytest.mark.parametrize("name", SAMPLES)
def test_compressed_files_are_the_same_and_are_refused_if_cut(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    if sample.suffix.endswith(".gz") or sample.format == "nadi":  # which is compressed as it is
        return
    whole = nadi.read(_written(tmp_path, sample))
    packed = gzip.compress(sample.content)
    path = tmp_path / f"packed{sample.suffix}.gz"
    path.write_bytes(packed)
    assert _nodes(nadi.read(path)).equals(_nodes(whole))
    for quarter in (1, 2, 3):
        path.write_bytes(packed[: len(packed) * quarter // 4])
        with pytest.raises(nadi.NadiError):
            nadi.read(path)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_file_that_was_cut_or_is_empty_is_refused(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    path = tmp_path / f"cut{sample.suffix}"
    for quarter in range(4):
        content = sample.content[: len(sample.content) * quarter // 4]
        path.write_bytes(content)
        if not may_be_whole(sample, content):
            with pytest.raises(nadi.NadiError, match="^" + str(path)):
                nadi.read(path)


@pytest.mark.parametrize(
    "name", [key for key, one in SAMPLES.items() if format_named(one.format).is_device_trace]
)
def test_files_of_ranks_are_told_apart_by_their_names(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    stated = nadi.read(_written(tmp_path, sample, f"rank3{sample.suffix}")).rank
    if stated >= 0:  # the file knows better than its name
        assert load_devices(tmp_path)[0].rank == stated
        return
    _written(tmp_path, sample, f"rank11{sample.suffix}")
    assert [trace.rank for trace in load_devices(tmp_path)] == [3, 11]


@pytest.mark.parametrize(
    "name", [key for key, one in SAMPLES.items() if format_named(one.format).encoder
             and format_named(one.format).name != "perfetto"]
)  # fmt: skip
def test_what_is_written_again_is_the_same(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    trace = nadi.read(_written(tmp_path, sample))
    path = tmp_path / f"again{format_named(sample.format).suffixes[0]}"
    nadi.write(trace, path, to=sample.format)
    assert _nodes(nadi.read(path)).equals(_nodes(trace))


def _decode(raw: RawFile) -> nadi.Trace:
    source = Path(raw.name).with_suffix(".trace.json")
    source.write_bytes(raw.content.tobytes().removeprefix(b"MINE"))
    return nadi.read(source)


def _is_mine(head: bytes) -> bool:
    return head.startswith(b"MINE")


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Entry points of other packages, as they are installed."""
    points: list[Any] = []
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    added_formats.cache_clear()
    yield points
    added_formats.cache_clear()


def _point(made: object) -> Any:
    return SimpleNamespace(value="mine.formats:FORMAT", load=lambda: made)


def test_a_format_of_another_package_is_read_like_the_others(
    tmp_path: Path, others: list[Any]
) -> None:
    mine = Format("mine", "my own", (".mine",), f"{__name__}:_decode",
                  looks_like=f"{__name__}:_is_mine")  # fmt: skip
    others.append(_point(mine))
    sample = SAMPLES["device"]
    path = tmp_path / "rank0.mine"
    path.write_bytes(b"MINE" + sample.content)
    assert sniff(path) == format_named("mine") == mine
    assert nadi.read(path).nodes.height == sample.num_nodes


@pytest.mark.parametrize("made", [7, Format("kineto", "not its name", (".k",), "a:b")])
def test_a_broken_package_is_named(tmp_path: Path, others: list[Any], made: object) -> None:
    others.append(_point(made))
    path = tmp_path / "unknown.bin"
    path.write_bytes(b"?")
    with pytest.raises(nadi.errors.InputError, match=r"nadi.formats: mine\.formats:FORMAT"):
        nadi.read(path)
