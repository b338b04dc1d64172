"""Logs of NCCL's Inspector: times without waiting, and the bandwidths that it states itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nadi.cli import main
from nadi.errors import FormatError
from nadi.systems import read_inspector, read_measured_collectives
from tests.formats.foreign_files import inspector_log


def _folder(path: Path) -> Path:
    for rank in range(4):
        (path / f"host{rank // 2}-pid{rank}.log").write_bytes(inspector_log(rank))
    return path


def test_of_each_collective_the_last_to_enter_counts(tmp_path: Path) -> None:
    tables = read_measured_collectives([_folder(tmp_path)])
    found = {one.collective: (one.ranks, one.nodes, one.sizes, one.times) for one in tables}
    assert found == {
        "all_gather": (4, 2, (4096,), (20_000.0,)),
        "all_reduce": (4, 2, (1 << 20,), (60_000.0,)),
    }
    table = read_inspector([tmp_path])
    assert table.select("collective", "count", "seen_ranks", "waiting_ns").rows() == [
        ("all_gather", 1, 4, 15_000.0), ("all_reduce", 2, 4, 15_000.0),
    ]  # fmt: skip


def test_bandwidths_are_those_that_the_inspector_states(tmp_path: Path) -> None:
    stated = [json.loads(line)["coll_perf"] for line in inspector_log(3).splitlines()]
    path = tmp_path / "one.log"
    for one in filter(None, stated):
        line = {"header": {"id": 1, "rank": 3, "n_ranks": 4}, "coll_perf": one}
        path.write_text(json.dumps(line) + "\n")
        (row,) = read_inspector([path]).to_dicts()
        assert row["algbw_gb_per_s"] == pytest.approx(one["coll_algobw_gbs"])
        assert row["busbw_gb_per_s"] == pytest.approx(one["coll_busbw_gbs"])


def test_a_broken_line_is_an_error_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(inspector_log() + b'{"header": {"id": 1, "rank": -4, "n_ranks": 4}}\n')
    with pytest.raises(FormatError, match="log, record 5"):
        read_inspector([path])


def test_measured_times_are_compared_with_a_system(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--measured", str(_folder(tmp_path)), "--system", "dgx-h100"]
    assert main(["collective", "measured", *given, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["collectives"]
    assert [row["measured_ns"] for row in rows] == [20_000, 60_000]
    assert all(row["estimated_ns"] > 0 and row["source"].startswith("NCCL") for row in rows)
    assert main(["collective", "measured", "1MiB", *given]) == 2
    assert main(["collective", "all_reduce", "--system", "dgx-h100"]) == 2
