"""A value that is easily taken for another is refused with the name of the parameter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from inspect import isfunction, signature
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pytest

import nadi
from nadi.errors import checked


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
    gains = [nadi.run(demo_folder, what_if=one).what_ifs[0].window_ns for one in (parsed, [parsed])]
    assert gains == [nadi.run(demo_folder, what_if=str(parsed)).what_ifs[0].window_ns] * 2


def test_a_system_may_be_given_by_its_name(demo_folder: Path) -> None:
    job = nadi.load_job(demo_folder)
    there = nadi.load_system("dgx-h100", 4)
    assert nadi.simulate(job, "dgx-h100").makespan == nadi.simulate(job, there).makespan
    with pytest.raises(nadi.errors.UsageError, match="no system has this name"):
        nadi.simulate(job, "nowhere")


_VALUES = {"EventGraph", "Simulation", "Replay", "Run", "TraceModel", "Job", "Trace"}


def _public_functions() -> dict[Any, str]:
    """Return public functions whose first parameter is one of these values."""
    packages = [nadi, *(
        import_module(f"nadi.{one.name}") for one in iter_modules(nadi.__path__)
        if one.ispkg and one.name not in ("kernels", "cli", "charts", "collect")
    )]  # fmt: skip
    found = {}
    for package in packages:
        for name in getattr(package, "__all__", ()):
            function = getattr(package, name)
            if isfunction(function) and (parameters := signature(function).parameters):
                first = next(iter(parameters.values()))
                words = set(re.findall(r"\w+", str(first.annotation)))
                if words & _VALUES and "Callable" not in words:
                    found[function] = f"{package.__name__}.{name}"
    return found


def test_every_public_function_names_a_value_of_another_kind() -> None:
    functions = _public_functions()
    assert len(functions) > 90
    for function, name in functions.items():
        needed = [
            one for one in signature(function).parameters.values()
            if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
        ]  # fmt: skip
        for wrong in (3, None, [3.5]):
            try:
                function(*[wrong] * max(len(needed), 1))
            except nadi.NadiError:
                continue
            except Exception as error:
                pytest.fail(f"{name}({wrong}): {error!r}")


def test_a_right_value_keeps_the_error_of_the_function() -> None:
    @checked
    def broken(text: str, number: float = 1.0, of: Sequence[str] | None = None) -> int:
        return text.nothing  # type: ignore[attr-defined, no-any-return]

    for given in ({}, {"number": 3}, {"of": ["a", "b"]}, {"number": np.int64(3)}):
        with pytest.raises(AttributeError, match="nothing"):
            broken("x", **given)
    for given, words in (
        ({"text": 3}, "text: it is of type int, not str"),
        ({"text": "x", "of": [1]}, "of: it is of type list, not Sequence\\[str\\] or None"),
    ):
        with pytest.raises(nadi.errors.UsageError, match=words):
            broken(**given)
