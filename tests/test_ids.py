"""The ids of tests, which have to be the same in every process of a parallel run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.amounts import ALL


@pytest.mark.skipif(not ALL, reason="a parallel run fails where its processes have other ids")
def test_ids_are_the_same_in_another_process(request: pytest.FixtureRequest) -> None:
    """At another time, with other hashes and another folder for what is temporary."""
    root = Path(__file__).resolve().parents[1]
    here = {item.nodeid for item in request.session.items}
    files = sorted({item.nodeid.partition("::")[0] for item in request.session.items})
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-o", "addopts=",
         *files],
        cwd=root, capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONHASHSEED": "4711"},
    )  # fmt: skip
    there = set(done.stdout.splitlines())
    assert here - there == set()
