"""``nadi collective``: sizes, tables, files, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import nadi
from nadi.cli import main
from nadi.systems import SystemFile
from nadi.systems.library import read_system_file, shipped_text
from tests.formats.test_nccl_log import LOG
from tests.formats.test_nccl_tests import NEW

COMMAND = ["collective", "all_reduce"]
ON = ["--system", "dgx-h100"]


def printed(capfd: pytest.CaptureFixture[str], *options: str) -> str:
    assert main([*COMMAND, *options]) == 0
    return capfd.readouterr().out


def test_one_size_is_a_few_lines(capfd: pytest.CaptureFixture[str]) -> None:
    text = printed(capfd, "256MB", *ON, "--ranks", "64")
    assert text.startswith("all_reduce, 64 ranks on 8 nodes of dgx-h100, 256 MB\n")
    for line in ("NCCL 2.27.7", "algorithm NVLSTree, protocol Simple", "bus bandwidth", "bound"):
        assert line in text


def test_sizes_are_a_list_or_double(capfd: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capfd, "8B,1KiB..8KiB", *ON, "--json"))
    assert found["system"] == "dgx-h100"
    sizes = [row["size_bytes"] for row in found["collectives"]]
    assert sizes == [8, 1024, 2048, 4096, 8192]
    assert all(row["time_ns"] > row["modeled_ns"] > 0 for row in found["collectives"])


def test_a_file_has_a_row_for_each_size(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "times.csv"
    text = printed(capfd, "1KiB..1GiB", *ON, "-o", str(target))
    assert text.endswith(f"wrote {target}\n")
    rows = pl.read_csv(target)
    assert rows.height == 21
    assert rows["time_ns"].is_sorted()
    assert main([*COMMAND, "1KiB", *ON, "-o", str(target)]) == 2
    assert "exists already" in capfd.readouterr().err
    assert pl.read_csv(target).height == 21


def test_measured_times_come_first(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "all_reduce.txt"
    file.write_text(NEW)  # four ranks on two nodes
    text = shipped_text("dgx-h100").replace("size = 8", "size = 2")
    machine = tmp_path / "pairs.toml"
    machine.write_text(text)
    options = ("--system", str(machine), "--ranks", "4", "--measured", str(file))
    assert "40.00 us  (measured, bandwidth)" in printed(capfd, "1MiB", *options)
    assert "extrapolated" in printed(capfd, "8MiB", *options)
    assert "NCCL 2.27.7" in printed(capfd, "1MiB", *ON, "--measured", str(file))


def test_graphs_of_a_log_replace_those_of_the_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nccl.log"
    file.write_text(LOG)
    text = printed(capfd, "1GiB", *ON, "--ranks", "16", "--nccl-log", str(file))
    assert "(NCCL 2.21.5)" in text
    assert text != printed(capfd, "1GiB", *ON, "--ranks", "16")


def test_what_nccl_does_not_have_is_simulated(capfd: pytest.CaptureFixture[str]) -> None:
    text = printed(capfd, "1MiB", "--system", "pcie-workstation")
    assert "(simulated)" in text
    assert "model" not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["1MiB..1KiB", *ON], "1MiB..1KiB: the range ends before it begins"),
        (["much", *ON], "SIZE: 'much' is not a size such as 80 GB or 80 GiB"),
        (["0B", *ON], "SIZE: '0B' is not a byte or more"),
        (["1MiB", *ON, "--ranks", "12"], "it does not fit 12 ranks"),
        (["1MiB", *ON, "-o", "times.txt"], ".txt is not a suffix of a table"),
        (["1MiB", *ON, "--measured", "nowhere"], "nowhere"),
        (["1MiB", "--system", "tpu-v4", "--nccl-log", "LOG"], "has no section nccl to correct"),
    ],
)
def test_bad_input_is_one_line(
    options: list[str], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "nccl.log"
    log.write_text(LOG)
    assert main([*COMMAND, *(str(log) if one == "LOG" else one for one in options)]) == 2
    error = capfd.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('version = "2.27.7"', 'version = "1.3"', "$.nccl.version: its cost model is not known"),
        ("capability = 90", "capability = 9", "$.nccl.capability: 9 is not a compute capability"),
        ("channels = 12", "channels = 0", "$.nccl.node.ring.channels: 0 is not 1 to 64"),
        ('bandwidth_intra = "30 GB/s"', 'bandwidth_intra = "30"', "nccl.node.ring.bandwidth_intra"),
        ("efficiency = 1.02", "efficiency = 3.0", "$.nccl.node.efficiency: 3.0 is not above 0"),
        ("[nccl.node]", '[nccl.node]\nlunch = "1 us"', "unknown field `lunch`"),
        ("[nccl]", 'compat = "astra-sim"\n[nccl]', "it has no effect with compat"),
        ("size = 8", 'size = "any"', "only the last dimension may have any size"),
    ],
)
def test_a_wrong_section_is_refused_with_its_path(
    old: str, new: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = shipped_text("dgx-h100")
    assert old in text
    if "compat" in new:
        text = f'compat = "astra-sim"\n{text}'.replace('slots = "device"', "")
    else:
        text = text.replace(old, new, 1)
    file = tmp_path / "mine.toml"
    file.write_text(text)
    assert main([*COMMAND, "1MiB", "--system", str(file)]) == 2
    assert message in capfd.readouterr().err


def test_systems_that_ship_state_where_corrections_come_from() -> None:
    for name in ("dgx-a100", "dgx-h100", "hgx-h200", "dgx-b200", "gb200-nvl72"):
        described: SystemFile = read_system_file(name)
        assert described.nccl is not None
        assert described.nccl.source


@pytest.mark.parametrize(("system", "ranks", "nodes"), [
    ("dgx-h100", 8, 1), ("dgx-h100", 16, 2), ("pcie-workstation", 4, 1), ("tpu-v4", 64, 2),
])  # fmt: skip
def test_a_send_takes_what_it_takes_in_a_job(
    system: str, ranks: int, nodes: int, capfd: pytest.CaptureFixture[str]
) -> None:
    size = 3 << 20
    given = ["collective", "send", "3MiB", "--system", system, "--ranks", str(ranks), "--json"]
    assert main(given) == 0
    (row,) = json.loads(capfd.readouterr().out)["collectives"]
    assert (row["ranks"], row["nodes"], row["source"]) == (2, nodes, "simulated")
    with nadi.JobBuilder(ranks) as job:
        job.together([0]).send(ranks - 1, size)
        job.together([ranks - 1]).recv(0, size)
        job.together(range(1, ranks - 1)).compute("idle", duration="1 ns")
    done = nadi.simulate(job.job, nadi.load_system(system, ranks))
    assert row["time_ns"] == done.makespan
    assert 0 < row["bound_ns"] <= row["time_ns"]
    assert row["bus_bandwidth_gb_per_s"] == pytest.approx(size / row["time_ns"])
