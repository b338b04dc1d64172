"""`nadi run` and `nadi demo` as a user has them: output, files, errors, exit codes."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from nadi.cli import main
from tests.conftest import PairWriter


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Any:
    """Run the command line; gives exit code, standard output and standard error."""

    def run_command(*arguments: str | Path) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run_command


def assert_one_clear_line(code: int, out: str, err: str, *parts: str) -> None:
    assert code == 2
    assert out == ""
    lines = [line for line in err.splitlines() if "compiling kernels" not in line]
    assert len(lines) == 1, err
    for part in parts:
        assert part in lines[0]


def test_demo_prints_an_answer_and_what_to_look_at_next(run: Any) -> None:
    code, out, _ = run("demo")
    assert code == 0
    for part in ("4 ranks", "replayed 412.7 ms (identical)", "critical path by kind",
                 "exposed communication", "what if scale gloo:all_reduce 0.5",
                 "Next steps"):  # fmt: skip
        assert part in out


def test_run_imports_the_simulator_only_to_price_communication(demo_folder: Path) -> None:
    code = (
        "import sys; from nadi.cli import main; main(['run', *sys.argv[1:]]); "
        "sys.exit('nadi.simulation.engine_driver' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(demo_folder)]
    for options, imports in (((), 0), (("--system", "dgx-h100"), 1)):
        done = subprocess.run([*command, *options], capture_output=True, check=False)
        assert done.returncode == imports, done.stderr.decode()


def test_run_writes_three_files_that_agree(run: Any, demo_folder: Path, tmp_path: Path) -> None:
    code, out, _ = run("run", demo_folder, "--what-if", "scale aten::copy_ 0.5", "-o", tmp_path)
    assert code == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["ranks"] == 4
    assert summary["nodes"] == sum(summary["nodes_by_kind"].values())
    assert summary["measured_ns"] == summary["replayed_ns"] == summary["critical_path_ns"]
    assert sum(summary["critical_path_by_kind"].values()) == summary["critical_path_ns"]
    assert [step["step"] for step in summary["steps"]] == [1, 2]
    assert 0 < summary["exposed_comm_ns"] < summary["measured_ns"]
    assert (summary["collectives_matched"], summary["transfers_matched"]) == (22, 2)
    assert [clock["shift_ns"] for clock in summary["clocks"]] == [0] * 4
    assert all(clock["low_ns"] <= 0 <= clock["high_ns"] for clock in summary["clocks"])
    assert "clock skew between ranks: at most 658.1 us (no correction applied)" in out
    (change,) = summary["what_if"]
    assert change["change"] == "scale aten::copy_ 0.5"
    assert change["window_ns"] < summary["measured_ns"]

    with (tmp_path / "critical_path.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sum(int(row["duration_ns"]) for row in rows) == summary["critical_path_ns"]
    assert all(a["end_ns"] == b["start_ns"] for a, b in pairwise(rows))

    events = json.loads(gzip.decompress((tmp_path / "timeline.json.gz").read_bytes()))
    assert {event["pid"] for event in events["traceEvents"]} == {0, 1, 2, 3}
    assert str(tmp_path / "timeline.json.gz") in out.replace("\n", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "critical_path.csv", "summary.json", "timeline.json.gz",
    ]  # fmt: skip


def test_json_prints_the_summary_and_nothing_else(run: Any, demo_folder: Path) -> None:
    code, out, _ = run("run", demo_folder, "--step", "2", "--json")
    assert code == 0
    summary = json.loads(out)
    assert summary["window"] == "step 2"
    assert summary["measured_ns"] == summary["steps"][1]["measured_ns"] == 214_726_054


def test_two_files_may_be_given_in_any_order(run: Any, demo_folder: Path) -> None:
    host, device = demo_folder / "host_2.json.gz", demo_folder / "device_2.json.gz"
    first = json.loads(run("run", host, device, "--json")[1])
    second = json.loads(run("run", device, host, "--json")[1])
    assert first == second
    assert first["ranks"] == 1
    assert first["world_size"] == 4


def test_version(run: Any) -> None:
    assert run("--version")[1].startswith("nadi 0.")


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["run"], "; nadi run --help lists its arguments and options"),
        (["nonsense"], "; nadi --help lists the commands"),
        (["run", ".", "--nonsense"], "; nadi run --help lists its arguments and options"),
    ],
)
def test_wrong_usage_is_one_line(run: Any, arguments: list[str], remedy: str) -> None:
    assert_one_clear_line(*run(*arguments), remedy)


def test_an_empty_folder(run: Any, tmp_path: Path) -> None:
    assert_one_clear_line(*run("run", tmp_path), str(tmp_path), "contains no trace that Nadi reads")


def test_a_path_that_is_not_there(run: Any, tmp_path: Path) -> None:
    assert_one_clear_line(*run("run", tmp_path / "nothing"), "nothing", "No such file")


def test_a_folder_above_names_the_folders_in_it(run: Any, tmp_path: Path) -> None:
    (tmp_path / "job_a").mkdir()
    assert_one_clear_line(*run("run", tmp_path), "job_a")


@pytest.mark.parametrize("name", ["host_0.json.gz", "device_0.json.gz"])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
def test_a_truncated_gzip(
    run: Any, demo_folder: Path, tmp_path: Path, name: str, share: float
) -> None:
    for file in ("host_0.json.gz", "device_0.json.gz"):
        content = (demo_folder / file).read_bytes()
        (tmp_path / file).write_bytes(content[: int(len(content) * share)] if file == name
                                      else content)  # fmt: skip
    output = tmp_path / "out"
    assert_one_clear_line(*run("run", tmp_path, "-o", output), name, "truncated")
    assert not output.exists()


def test_a_host_without_its_device(run: Any, demo_folder: Path, tmp_path: Path) -> None:
    shutil.copy(demo_folder / "host_0.json.gz", tmp_path)
    assert_one_clear_line(*run("run", tmp_path), "host_0.json.gz", "without a device trace")


def test_one_rank_of_several_without_its_device(
    run: Any, demo_folder: Path, tmp_path: Path
) -> None:
    for name in ("host_0", "device_0", "host_1"):
        shutil.copy(demo_folder / f"{name}.json.gz", tmp_path)
    assert_one_clear_line(*run("run", tmp_path), "host_1.json.gz", "without its device trace")


def test_two_files_of_one_rank(run: Any, demo_folder: Path, tmp_path: Path) -> None:
    for name in ("host_0", "device_0"):
        shutil.copy(demo_folder / f"{name}.json.gz", tmp_path / f"{name}.json.gz")
        shutil.copy(demo_folder / f"{name}.json.gz", tmp_path / f"copy_of_{name}.json.gz")
    assert_one_clear_line(
        *run("run", tmp_path), "copy_of_device_0.json.gz", "2 device traces have rank 0"
    )


def test_a_device_file_given_as_host(run: Any, demo_folder: Path) -> None:
    device = demo_folder / "device_0.json.gz"
    assert_one_clear_line(*run("run", device, device), "2 device traces have rank 0")


def test_host_traces_alone(run: Any, demo_folder: Path) -> None:
    host = demo_folder / "host_0.json.gz"
    assert_one_clear_line(*run("run", host), "without a device trace", "add the Kineto trace")


def test_device_traces_alone(run: Any, demo_folder: Path, tmp_path: Path) -> None:
    for rank in range(2):
        shutil.copy(demo_folder / f"device_{rank}.json.gz", tmp_path)
    summary = json.loads(run("run", tmp_path, "--json")[1])
    assert summary["ranks"] == 2
    assert summary["replayed_ns"] == summary["measured_ns"] > 0
    assert summary["critical_path_ns"] == summary["measured_ns"]
    (issue,) = [i for i in summary["issues"] if i["code"] == "link.no-host"]
    assert (issue["severity"], issue["count"]) == ("info", 2)
    assert issue["detail"].endswith("no operands and no recorded parents")
    lines = [line for line in run("run", tmp_path)[1].splitlines() if "no host trace" in line]
    assert len(lines) == 1
    assert "adds data dependencies: nadi what-if --reorder" in lines[0]


@pytest.mark.parametrize(
    "command",
    [
        ["run"], ["run", "--by", "module"], ["critical-path"], ["what-if"],
        ["what-if", "network 10GB/s"], ["info"], ["info", "--check"],
    ],
    ids=["run", "modules", "critical-path", "limits", "what-if", "info", "check"],
)  # fmt: skip
def test_commands_answer_from_device_traces_alone(
    run: Any, demo_folder: Path, tmp_path: Path, command: list[str]
) -> None:
    for rank in range(2):
        shutil.copy(demo_folder / f"device_{rank}.json.gz", tmp_path)
    code, out, err = run(command[0], tmp_path, *command[1:])
    assert code == 0, err
    assert out


def test_what_needs_data_dependencies_says_so_without_hosts(run: Any, demo_folder: Path) -> None:
    device = demo_folder / "device_0.json.gz"
    assert_one_clear_line(
        *run("what-if", device, "--reorder"), "no data dependencies", "add host traces"
    )


@pytest.mark.parametrize("command", ["run", "critical-path", "what-if", "what-if --reorder"])
def test_a_device_trace_without_operations(run: Any, tmp_path: Path, command: str) -> None:
    (tmp_path / "device.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    assert_one_clear_line(*run(*command.split(), tmp_path), "no operation has a timestamp")


def test_a_step_that_is_not_there_lists_those_that_are(run: Any, demo_folder: Path) -> None:
    assert_one_clear_line(*run("run", demo_folder, "--step", "9"), "--step 9", "1, 2")


def test_a_change_that_matches_nothing_names_similar_ones(run: Any, demo_folder: Path) -> None:
    arguments = ("run", demo_folder, "--what-if", "scale aten::adm 0.5")
    assert_one_clear_line(*run(*arguments), "aten::adm", "did you mean aten::")


def test_a_malformed_change_is_refused_before_anything_is_read(run: Any, tmp_path: Path) -> None:
    arguments = ("run", tmp_path / "nothing", "--what-if", "faster please")
    assert_one_clear_line(*run(*arguments), "scale [wait] SELECT FACTOR")


def test_an_output_folder_that_cannot_be(run: Any, demo_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = run("run", demo_folder, "-o", tmp_path / "file" / "results")
    assert code == 2
    assert "cannot be written" in err


def test_names_are_printed_as_they_are(run: Any, pair: PairWriter) -> None:
    pair.op('odd [bold]name[/] "quoted" \\ ünï', 0, 10)
    host, device = pair.write()
    code, out, _ = run("run", host, device, "-o", pair.folder / "out")
    assert code == 0
    assert 'odd [bold]name[/] "quoted" \\ ünï' in out
    timeline = json.loads(gzip.decompress((pair.folder / "out/timeline.json.gz").read_bytes()))
    assert 'odd [bold]name[/] "quoted" \\ ünï' in {e["name"] for e in timeline["traceEvents"]}
