"""Nadi's own file gives back the very trace, and says what is wrong with one that is broken."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import nadi
from nadi.files import sniff
from nadi.files.native import nadi_file as native
from tests.amounts import examples
from tests.formats.graphs import HARD_NAMES, make_trace
from tests.fuzz.mutations import mutated

VERSIONS = Path(__file__).parent / "native"


def test_every_kind_of_trace_comes_back(
    demo_folder: Path, demo_run: nadi.bottlenecks.Run, tmp_path: Path
) -> None:
    traces = [
        demo_run.job.traces[2],
        nadi.read(demo_folder / "host_0.json.gz"),
        nadi.read(demo_folder / "device_0.json.gz"),
        make_trace(HARD_NAMES, [(0, 1, "data")], [(2, "ctrl_deps[0]", 5)]),
        make_trace([]),
    ]
    for trace in traces:
        assert nadi.write(trace, tmp_path / "a.nadi").is_empty()
        back = nadi.read(tmp_path / "a.nadi")
        trace.assert_equals(back)
        assert back.provenance == trace.provenance
        assert list(back.attributes.items()) == list(trace.attributes.items())


def test_the_same_trace_gives_the_same_file(demo_run: nadi.bottlenecks.Run, tmp_path: Path) -> None:
    trace = demo_run.job.traces[0]
    nadi.write(trace, tmp_path / "a.nadi")
    nadi.write(nadi.read(tmp_path / "a.nadi"), tmp_path / "b.nadi")
    assert (tmp_path / "a.nadi").read_bytes() == (tmp_path / "b.nadi").read_bytes()


@pytest.mark.parametrize("version", range(1, native.VERSION + 1))
def test_every_version_ever_written_is_read(version: int) -> None:
    """``tests/formats/native/N.nadi`` was written by the first Nadi of version N."""
    trace = nadi.read(VERSIONS / f"{version}.nadi")
    assert trace.nodes["name"].cast(str).to_list() == HARD_NAMES
    assert trace.deps.select("src", "dst", "kind").rows() == [(0, 1, "data"), (1, 2, "ctrl")]
    assert trace.attributes.of(2) == {"ctrl_deps[0]": 5}


def rewritten(path: Path, member: str, content: bytes | None) -> Path:
    """Copy a file with one member changed, or left out."""
    out = path.with_name("changed.nadi")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for info in old.infolist():
            if info.filename != member:
                new.writestr(info, old.read(info))
            elif content is not None:
                new.writestr(info, content)
    return out


@pytest.mark.parametrize(
    ("member", "content", "message"),
    [
        ("nadi.json", b'{"version": 999}', "version 999; this Nadi reads version 1; update"),
        ("nadi.json", b'{"version": 1}', "required field"),
        ("nadi.json", b"{", "nadi.json: "),
        ("nodes.arrow", b"no arrow", "nodes.arrow: "),
        ("deps.arrow", None, "member deps.arrow is missing"),
    ],
)
def test_what_is_wrong_is_told(
    tmp_path: Path, member: str, content: bytes | None, message: str
) -> None:
    nadi.write(make_trace(HARD_NAMES), tmp_path / "a.nadi")
    path = rewritten(tmp_path / "a.nadi", member, content)
    with pytest.raises(nadi.errors.FormatError, match=message):
        nadi.read(path)


def test_a_file_replaced_after_opening_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.nadi"
    nadi.write(make_trace(HARD_NAMES), path)
    trace = nadi.read(path)
    nadi.write(make_trace(HARD_NAMES[:3]), path)
    with pytest.raises(nadi.errors.InputError, match="changed after it was opened"):
        _ = trace.attributes


def test_it_is_told_by_content(tmp_path: Path) -> None:
    nadi.write(make_trace(HARD_NAMES), tmp_path / "a.nadi")
    (tmp_path / "a.nadi").rename(tmp_path / "a.json")
    found = sniff(tmp_path / "a.json")
    assert found is not None
    assert found.name == "nadi"


@pytest.mark.parametrize("part", range(4))
def test_damage_is_told_in_one_line_and_prints_nothing(
    part: int, demo_run: nadi.bottlenecks.Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    nadi.write(demo_run.job.traces[0], tmp_path / "a.nadi")
    content = (tmp_path / "a.nadi").read_bytes()
    damaged = tmp_path / "damaged.nadi"
    told = []
    for number in range(examples(150)):
        damaged.write_bytes(mutated(content, content, f"{part}:{number}"))
        try:
            trace = nadi.read(damaged)
            trace.assert_equals(demo_run.job.traces[0])
            assert len(trace.attributes) == len(demo_run.job.traces[0].attributes)
        except nadi.NadiError as error:
            told.append(str(error))
    assert len(told) > examples(150) // 2
    assert not [text for text in told if "\n" in text]
    assert capfd.readouterr() == ("", "")  # of polars' threads too: its panics print lines
