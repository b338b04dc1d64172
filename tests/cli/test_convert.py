"""`nadi convert`: what is written, what is said, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import nadi
from nadi.cli import main
from nadi.files.registry import FORMATS
from tests.cli.test_run import assert_one_clear_line
from tests.formats.graphs import HARD_NAMES, make_trace

Output = tuple[int, str, str]


@pytest.fixture
def et(tmp_path: Path) -> Path:
    path = tmp_path / "rank0.et"
    nadi.write(make_trace(HARD_NAMES, [(0, 1, "data"), (1, 3, "ctrl")]), path)
    return path


def convert(capsys: pytest.CaptureFixture[str], *arguments: object) -> Output:
    code = main(["convert", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_every_format_that_is_written(
    et: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for one in FORMATS:
        if one.encoder and one.name not in ("svg", "pdf"):  # which need a program
            target = tmp_path / f"{one.name}{one.suffixes[0]}.gz"
            code, out, err = convert(capsys, et, target)
            assert (code, err) == (0, "")
            assert f"{et} -> {target} ({one.name}, 8 nodes)" in out
            written = target if one.name != "csv" else tmp_path / "csv.nodes.csv.gz"
            assert written.read_bytes()[:2] == b"\x1f\x8b"


def test_a_folder_becomes_a_folder(
    demo_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = convert(capsys, demo_folder, tmp_path / "out", "--to", "nadi")
    assert code == 0
    names = sorted(path.name for path in (tmp_path / "out").glob("[!.]*"))
    assert names == sorted(
        f"{kind}_{rank}.nadi" for kind in ("host", "device") for rank in range(4)
    )
    assert out.count("->") == 8
    for name in names:
        original = nadi.read(demo_folder / name.replace(".nadi", ".json.gz"))
        original.assert_equals(nadi.read(tmp_path / "out" / name))


def test_a_folder_becomes_chakra_unless_told(
    demo_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    code, _, _ = convert(capsys, demo_folder / "host_0.json.gz", tmp_path / "out")
    assert code == 0
    original = nadi.read(demo_folder / "host_0.json.gz")
    assert nadi.read(tmp_path / "out/host_0.et").nodes.height == original.nodes.height


def test_what_is_left_out_is_counted(
    et: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = convert(capsys, et, tmp_path / "a.graphml")
    assert "info: attributes are not written [" in out


def test_addresses(et: Path) -> None:
    nadi.convert(et, "memory://bucket/run/rank0.et.gz")
    assert nadi.read("memory://bucket/run/rank0.et.gz").nodes.height == 8
    (done,) = nadi.convert("memory://bucket/run", "memory://bucket/out", to="nadi")
    assert str(done.target) == "memory://bucket/out/rank0.nadi"
    nadi.read(et).assert_equals(nadi.read("memory://bucket/out/rank0.nadi"))
    with pytest.raises(nadi.errors.InputError, match=r"memory://bucket/none\.et: cannot be read"):
        nadi.read("memory://bucket/none.et")


def test_refusals(et: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "there.nadi").write_bytes(b"old")
    for arguments, words in (
        ((et, tmp_path / "there.nadi"), ["exists already", "--overwrite"]),
        ((et, et), ["the output would replace an input file"]),
        ((et, tmp_path / "a.xyz"), ["unknown suffix", ".graphml"]),
        (
            (et, tmp_path / "a", "--to", "excel"),
            ["--to excel: unknown format", "perfetto"],
        ),
        ((et, tmp_path / "a.json", "--to", "pytorch"), ["can only be read"]),
        ((et, tmp_path / "a.nadi", "--schema", "1.0.0"), ["has only one schema"]),
        (
            (et, tmp_path / "a.et", "--schema", "2"),
            ["--schema 2: unknown schema", "0.0.4, 1.0.0"],
        ),
        ((tmp_path / "none.et", tmp_path / "a.nadi"), ["none.et", "cannot be read"]),
        ((et, "s4://bucket/a.et"), ["s4://bucket/a.et"]),
    ):
        code, out, err = convert(capsys, *arguments)
        assert_one_clear_line(code, out, err, *words)
    assert (tmp_path / "there.nadi").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank0.et", "there.nadi"]


def test_force_replaces(et: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "there.nadi").write_bytes(b"old")
    assert convert(capsys, et, tmp_path / "there.nadi", "--overwrite")[0] == 0
    nadi.read(et).assert_equals(nadi.read(tmp_path / "there.nadi"))


def test_two_files_for_one_name(
    et: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nadi.write(nadi.read(et), tmp_path / "rank0.nadi")
    code, out, err = convert(capsys, tmp_path, tmp_path / "out")
    assert_one_clear_line(code, out, err, "rank0.nadi", "would be written to", "as rank0.et would")
    assert not (tmp_path / "out").exists()


def test_csv_is_a_file_per_table(et: Path, tmp_path: Path) -> None:
    nadi.write(nadi.read(et), tmp_path / "out.csv")
    nodes = pl.read_csv(tmp_path / "out.nodes.csv")
    assert nodes["id"].to_list() == nadi.read(et).column("id").tolist()
    with pytest.raises(nadi.errors.InputError, match=r"out\.nodes\.csv: exists already"):
        nadi.convert(et, tmp_path / "out.csv")
    names = {path.name for path in tmp_path.glob("out.*")}
    assert names == {f"out.{t}.csv" for t in ("nodes", "deps", "groups", "attrs", "issues")}


def test_info_reads_every_format(et: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nadi.write(nadi.read(et), et.with_suffix(".nadi"))
    assert main(["info", str(et.parent), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [one["nodes"] for one in data] == [8, 8]


def test_a_trace_of_another_format_is_no_pair(et: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["run", str(et)])
    captured = capsys.readouterr()
    assert_one_clear_line(
        code, captured.out, captured.err, str(et), "only linked or generated traces"
    )
