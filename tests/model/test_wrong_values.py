"""A value that is easily taken for another is refused with the name of the parameter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nadi


def test_graphs_jobs_and_traces_are_not_taken_for_each_other(
    demo_folder: Path, tmp_path: Path
) -> None:
    host, device = (nadi.read(demo_folder / f"{name}_0.json.gz") for name in ("host", "device"))
    trace: Any = nadi.link_pair(host, device)
    job: Any = nadi.load_job(demo_folder)
    window: Any = object()
    cases = [
        (lambda: nadi.what_if(job, "no-gaps"), "graph: it is of type Job, not EventGraph"),
        (lambda: nadi.to_networkx(job), "graph: it is of type Job, not EventGraph"),
        (lambda: nadi.critical_path(job, window), "source: it is of type Job, not Replay"),
        (lambda: nadi.write(job, tmp_path / "x.et"), "trace: it is of type Job, not Trace"),
        (lambda: nadi.build_graph(trace), "job: it is of type Trace, not Job"),
        (lambda: nadi.link_pair(host, host), "device: no operation has a time"),
        (lambda: nadi.run(), "paths: none is given"),
    ]
    for call, words in cases:
        with pytest.raises(nadi.NadiError, match=words):
            call()


def test_a_system_may_be_given_by_its_name(demo_folder: Path) -> None:
    job = nadi.load_job(demo_folder)
    there = nadi.load_system("dgx-h100", 4)
    assert nadi.simulate(job, "dgx-h100").makespan == nadi.simulate(job, there).makespan
    with pytest.raises(nadi.errors.UsageError, match="no system has this name"):
        nadi.simulate(job, "nowhere")
