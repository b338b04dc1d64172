"""Kernels that a second process compiles while a command is under way."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys

import pytest

from nadi.kernels import compile_ahead
from nadi.kernels.signatures import as_lists, as_tuples
from tests.amounts import ALL

ARRAY = ("array", "<i8", 1, "C", "")
ROWS = compile_ahead.Known("nadi.kernels.sequences", "group_rows", (ARRAY,) * 3)
SKIP = compile_ahead.Known(
    "nadi.kernels.json_tokens", "skip", (("array", "|u1", 1, "C", ""), "int")
)
# a process with an empty folder, which calls a kernel while another compiles two
PROBE = """
import json, sys
import numpy as np
from nadi.kernels import kernel_cache, compile_ahead, jit
from nadi.kernels.sequences import group_rows
from nadi.kernels.signatures import as_tuples

known = [compile_ahead.Known(*as_tuples(one)) for one in json.loads(sys.argv[1])]
told, here = [], []
first, order = np.zeros(4, dtype=np.int64), np.empty(3, dtype=np.int64)
with jit.watching(lambda name, is_over: here.append(name)):
    with compile_ahead.compiling_ahead(known, told.append):
        group_rows(np.array([2, 0, 2]), first, order)
        while len(told) < len(known) - ("group_rows" in here):
            pass
print(json.dumps([
    order.tolist(), [kernel_cache.is_there(one.module, one.entry) for one in known],
    sorted([*told, *here[::2]]),
]))
"""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core")
@pytest.mark.parametrize("order", [(ROWS, SKIP), (SKIP, ROWS)][: 2 if ALL else 1])
def test_each_kernel_is_compiled_once(tmp_path, order):
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(as_lists(order))],
        env={**environment, "XDG_CACHE_HOME": str(tmp_path)}, timeout=300,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[1, 0, 2], [True, True], ["group_rows", "skip"]]


def test_the_list_names_kernels_that_are_there():
    from nadi.kernels.numba_internals import _type_of

    known = {one for kernels in compile_ahead.known_kernels().values() for one in kernels}
    assert len(known) > 40
    for one in known:
        function = getattr(importlib.import_module(one.module), one.name).__wrapped__
        assert function.__code__.co_argcount == len(one.signature)
        assert all(_type_of(stated) for stated in one.signature)


def test_what_demo_calls_is_listed():
    code = (
        "import json; from nadi.cli import main; main(['demo']); from nadi.kernels import jit;"
        "from nadi.kernels.signatures import as_lists;"
        "print(json.dumps(as_lists(tuple(jit.in_use()))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    called = {
        compile_ahead.Known(*as_tuples(one)) for one in json.loads(done.stdout.splitlines()[-1])
    }
    assert called == set(compile_ahead.known_kernels()["demo"])
