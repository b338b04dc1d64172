"""Compiling on a second core what a command is known to need, while it is under way.

``known_kernels.json`` lists for each command the kernels that it calls, and with what types of
arguments: first what most of its uses need, the longest first. A process beside this one compiles
them in that order, and keeps them where this one finds them. It is asked for one at a time: what
this process needs first, and nobody has begun, it compiles itself.
"""

import contextlib
import functools
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Condition, Thread
from typing import Any, NamedTuple

from nadi.kernels import jit, kernel_cache
from nadi.kernels.signatures import Signature, as_lists, as_tuples

_LIST = Path(__file__).with_name("known_kernels.json")


class Known(NamedTuple):
    """A kernel that a command calls."""

    module: str
    name: str
    signature: Signature

    @property
    def entry(self) -> str:
        """The name by which its code is found."""
        return kernel_cache.entry_of(*self)


@functools.cache
def known_kernels() -> dict[str, list[Known]]:
    """Give the kernels that each command is known to call, in the order to compile them."""
    stated = json.loads(_LIST.read_bytes())
    kernels = [Known(module, name, as_tuples(types)) for module, name, types in stated["kernels"]]
    return {use: [kernels[i] for i in places] for use, places in stated["uses"].items()}


def missing_kernels(use: str) -> list[Known]:
    """Give those of a command that have yet to be compiled."""
    if not jit.IS_KNOWN:
        return []  # numba keeps them in its own way
    known = known_kernels().get(use, [])
    return [one for one in known if not kernel_cache.is_there(one.module, one.entry)]


def compile_known(one: Known, root: Path) -> None:
    """Compile a kernel and keep it below a folder."""
    function = getattr(importlib.import_module(one.module), one.name)
    kernel_cache.keep_kernel(
        kernel_cache.kernel_place(root, one.module, one.entry),
        jit.compile_anew(function.__wrapped__, one.signature, one.entry),
    )


class _Beside:
    """A process that compiles, and what it is to do yet."""

    def __init__(self, to_do: list[Known], tell: Callable[[str], None]) -> None:
        self._to_do = {one.entry: one for one in to_do}
        self._under_way = ""
        self._change = Condition()
        self._tell = tell
        self._process = subprocess.Popen(  # noqa: S603  this Python, and this module
            # not from the working folder, which may hold files of others
            [sys.executable, "-P", "-c", f"from {__name__} import work; work()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
        self._thread = Thread(target=self._hand_out, daemon=True)
        self._thread.start()

    def _hand_out(self) -> None:
        given, taken = self._process.stdin, self._process.stdout
        assert given is not None
        assert taken is not None
        while True:
            with self._change:
                self._under_way = next(iter(self._to_do), "")
                one = self._to_do.pop(self._under_way, None)
                self._change.notify_all()
            if one is None:
                return
            try:
                given.write(json.dumps(as_lists(one)).encode() + b"\n")
                given.flush()
                if not taken.readline():
                    raise OSError
            except (OSError, ValueError):  # it ended: this process compiles the rest
                with self._change:
                    self._under_way = ""
                    self._to_do.clear()
                    self._change.notify_all()
                return
            self._tell(one.name)

    def claim(self, entry: str) -> None:
        """Wait while the process compiles a kernel; or keep it from beginning with it."""
        with self._change:
            self._to_do.pop(entry, None)
            self._change.wait_for(lambda: self._under_way != entry)

    def end(self) -> None:
        """End the process, whatever it is at."""
        with self._change:
            self._to_do.clear()
        self._process.kill()
        self._process.wait()
        self._thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # what was not yet written is lost with the process
                if pipe is not None:
                    pipe.close()


@contextlib.contextmanager
def compiling_ahead(missing: list[Known], tell: Callable[[str], None]) -> Iterator[None]:
    """Have kernels compiled by another process meanwhile, if there is a core for it.

    - ``missing``: What is to be compiled, in this order.
    - ``tell``: Called, from another thread, when one of them is done.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if len(missing) < 2 or (cores or 1) < 2 or kernel_cache.cache_folder() is None:
        yield
        return
    beside = _Beside(missing, tell)
    try:
        with jit.sharing_work(beside.claim):
            yield
    finally:
        beside.end()


def work() -> None:
    """Compile what is asked for, a line of JSON each, and answer each with a line."""
    root = kernel_cache.cache_folder()
    for line in sys.stdin:
        one: Any = Known(*as_tuples(json.loads(line)))
        if root is not None and not kernel_cache.is_there(one.module, one.entry):
            compile_known(one, root)
        sys.stdout.write("done\n")
        sys.stdout.flush()
