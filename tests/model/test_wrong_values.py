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
    graph = nadi.build_graph(job)
    cases = [
        (lambda: nadi.what_if(job, "no-gaps"), "graph: it is of type Job, not EventGraph"),
        (lambda: nadi.to_networkx(job), "graph: it is of type Job, not EventGraph"),
        (lambda: nadi.critical_path(job, window), "source: it is of type Job, not Replay"),
        (lambda: nadi.write(job, tmp_path / "x.et"), "trace: it is of type Job, not Trace"),
        (lambda: nadi.build_graph(trace), "job: it is of type Trace, not Job"),
        (lambda: nadi.link_pair(host, host), "device: no operation has a time"),
        (lambda: nadi.run(), "paths: none is given"),
        (lambda: nadi.link_pair(host, job), "device: it is of type Job, not Trace"),
        (lambda: nadi.run(job), "path: it is of type Job, neither a text nor a Path"),
        (lambda: nadi.simulate(trace, "dgx-h100"), "job: it is of type Trace, not Job"),
        (lambda: nadi.simulate(job, trace), "system: it is of type Trace, neither a name"),
        (lambda: nadi.redraw(job, "x.json"), "answer: it is of type Job, not WhatIf"),
        (lambda: nadi.what_if(graph, trace), "is of type Trace, and no change"),
        (lambda: nadi.from_networkx(job), "digraph: was not made by to_networkx"),
    ]
    for call, words in cases:
        with pytest.raises(nadi.NadiError, match=words):
            call()


def test_a_run_takes_changes_as_texts_and_as_values(demo_folder: Path) -> None:
    parsed = nadi.whatif.parse_change("scale aten::addmm 0.5")
    gains = [nadi.run(demo_folder, what_if=one).what_ifs[0].step_ns for one in (parsed, [parsed])]
    assert gains == [nadi.run(demo_folder, what_if=str(parsed)).what_ifs[0].step_ns] * 2


def test_a_system_may_be_given_by_its_name(demo_folder: Path) -> None:
    job = nadi.load_job(demo_folder)
    there = nadi.load_system("dgx-h100", 4)
    assert nadi.simulate(job, "dgx-h100").makespan == nadi.simulate(job, there).makespan
    with pytest.raises(nadi.errors.UsageError, match="no system has this name"):
        nadi.simulate(job, "nowhere")
