"""The page of two recordings: differences first, each number that of the commands' JSON."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import nadi
from nadi.bottlenecks.differences.result import DIFF
from nadi.bottlenecks.steps.run_report import summarize
from nadi.bottlenecks.waiting.result import WAITS
from nadi.cli import main
from nadi.recordings.job_of_files import are_two_recordings
from tests.analyze.test_compared_runs import recording
from tests.conftest import PairWriter
from tests.report.page_numbers import operators_of, read_page
from tests.report.test_report_page import check_numbers, timeline_of


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("two")
    return recording(place / "before"), recording(place / "after", kernel=80, extra=True)


def test_differences_come_first_with_the_numbers_of_the_commands(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert main(["report", *map(str, folders), "-o", str(page)]) == 0
    html = page.read_text()
    summaries = [summarize(nadi.run(folder, by="module")) for folder in folders]
    found = DIFF.data(nadi.bottlenecks.diff(*folders))
    # as JSON has them: keys are texts
    both = {**summaries[1], "diff": found, "before": summaries[0]}
    both["waits"] = WAITS.data(nadi.bottlenecks.waits(folders[1]))
    both["operators"] = operators_of(*nadi.run(folders[1]).job.traces)
    results = json.loads(json.dumps(both))
    assert check_numbers(html, results) > 60
    shown = read_page(html)
    assert shown.sections[:2] == ["diff", "verdict"]
    changes = {n.at: n.text for n in shown.numbers if not n.of}
    assert changes["/diff/change_ns"] == "+90.00 us"
    assert changes["/diff/path/0/change_ns"] == "+60.00 us"
    header, columns = timeline_of(html)
    assert [title for title, _ in header["processes"]] == ["rank 0 before", "rank 0 after"]
    # the steps begin at the same place of the axis, each later by what the longer one before takes
    before, after = summaries[0]["steps"], summaries[1]["steps"]
    assert [[step, end - begin] for step, begin, end in header["steps"][1]] == [
        [step["step"], step["measured_ns"]] for step in after
    ]
    place = header["steps"][0][0][1]
    for at, pair in enumerate(zip(before, after, strict=True)):
        assert [sum(later[at]) for later in header["later"]] == [place, place]
        place += max(step["measured_ns"] for step in pair)
    assert [sum(later[-1]) for later in header["later"]] == [place, place]
    assert header["window"][1] == place
    start = np.cumsum(columns["start±"]) + header["begin"]
    steps = [i for i, (name, _) in enumerate(header["names"]) if name.startswith("ProfilerStep#")]
    of_step = np.isin(np.array(columns["name"]) // 2, steps)
    first_row = np.repeat([track for track, _, _ in header["rows"]],
                          [size for _, _, size in header["rows"]])  # fmt: skip
    process = np.array([one[0] for one in header["tracks"]])[first_row]
    assert start[of_step & (process == 0)].min() == start[of_step & (process == 1)].min()
    step = tmp_path / "step.html"
    assert main(["report", *map(str, folders), "--step", "4", "-o", str(step)]) == 0
    assert "+90.00 us" in step.read_text()


def test_options_of_one_recording_are_refused(
    folders: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    given = ["report", *map(str, folders), "-o", str(page), "--system", "dgx-h100"]
    assert main(given) == 2
    assert "--system: applies to one recording" in capsys.readouterr().err
    assert not page.exists()


@pytest.mark.parametrize(
    ("first", "second", "ranks", "expected"),
    [
        ("a/device.json", "b/device.json", None, True),
        ("h100_vit.json", "mi300_vit.json", None, True),
        ("device_0.json", "device_1.json", None, False),
        ("device_0.json", "device_1.json", (0, 1), False),
        ("device_0.json", "device_1.json", (3, 3), True),
        ("rank0", "rank_1", None, False),
        ("run_1", "run_2", None, True),
        ("run_1", "run_2", (0, 1), False),
        ("rank_0", "rank_1", (5, 5), True),
        ("decode.json", "capture_traces__bs_32.json", (0, 0), False),
        ("captures/decode.json", "captures/prefill.json", (0, 0), True),
    ],
)
def test_two_recordings_or_parts_of_one(
    tmp_path: Path, first: str, second: str, ranks: tuple[int, int] | None, expected: bool
) -> None:
    places = []
    for number, name in enumerate((first, second)):
        scratch = tmp_path / f"written{number}"
        scratch.mkdir()
        pair = PairWriter(scratch)
        pair.op("aten::mm", 0, 10)
        device = pair.write()[1]
        opened = gzip.open if device.suffix == ".gz" else open
        with opened(device, "rt") as file:
            content = json.load(file)
        content.pop("distributedInfo", None)
        if ranks:
            content = {"distributedInfo": {"rank": ranks[number], "world_size": 8}, **content}
        place = tmp_path / name
        file = place if place.suffix else place / "device.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content))
        places.append(place)
    assert are_two_recordings(*places) is expected


def test_a_host_and_a_device_trace_are_one_recording(folders: tuple[Path, Path]) -> None:
    host, device = sorted(folders[0].iterdir(), key=lambda file: "host" not in file.name)
    assert not are_two_recordings(host, device)
