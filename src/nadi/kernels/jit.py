"""One decorator for every compiled kernel.

A kernel is compiled when it is first called with arguments of some types, and kept on disk
(:mod:`nadi.kernels.kernel_cache`). What is kept is called without numba, whose import takes
longer than a short command. Where no folder can be used each process compiles anew: slower,
never a failure. With a version of numba that was not tried, kernels are compiled by numba's
public means, and kept by numba.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, cast

from nadi.kernels import kernel_cache
from nadi.kernels.kernel_cache import KeptKernel
from nadi.kernels.object_code import load
from nadi.kernels.signatures import Signature, pack, signature_of

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Watcher = Callable[[str, bool], None]

# versions of numba whose inner parts are as kernels/numba_internals.py wants them
_LEAST, _BEYOND = (0, 68), (0, 69)
IS_KNOWN = _LEAST <= tuple(
    map(int, kernel_cache.compilers()["numba"].split(".")[:2])
) < _BEYOND and os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
_COMPILING = Lock()
_unnamed = itertools.count()
_watchers: list[_Watcher] = []
_in_use: dict[tuple[str, str, Signature], None] = {}
_claim: Callable[[str], None] | None = None


def _begin_anew() -> None:
    """Let a forked process have a lock of its own: the other may hold it at that moment."""
    global _COMPILING
    _COMPILING = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


@contextlib.contextmanager
def watching(watcher: _Watcher) -> Iterator[None]:
    """Call ``watcher`` with a kernel's name before (False) and after (True) it is compiled."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


@contextlib.contextmanager
def sharing_work(claim: Callable[[str], None]) -> Iterator[None]:
    """Call ``claim`` before a kernel is compiled: somebody else may be at it, or about to begin."""
    global _claim
    _claim = claim
    try:
        yield
    finally:
        _claim = None


def in_use() -> list[tuple[str, str, Signature]]:
    """Give module, name and types of arguments of each kernel that was called so far."""
    return list(_in_use)


def kernel(function: _Function) -> _Function:
    """Compile ``function`` in nopython mode when it is first called.

    Its arguments are numbers, arrays, and tuples of them; it returns integers or nothing.
    What is compiled is kept on disk where a folder allows it.
    """
    if not IS_KNOWN:
        return _publicly_compiled(function)
    call: Any = functools.wraps(function)(_caller(function, ()))
    call.with_first = functools.partial(_caller, function)
    return cast("_Function", call)


def prepared(kernel: Callable[..., Any], *first: Any) -> Callable[..., Any]:
    """Give a kernel whose first arguments stay the same, and are looked at once.

    For small work that is done often: to look at an array takes as long as 100 steps of a
    kernel. What is returned takes the other arguments, and keeps the first ones alive.
    """
    with_first = getattr(kernel, "with_first", None)
    return functools.partial(kernel, *first) if with_first is None else with_first(first)


def _caller(function: Callable[..., Any], first: tuple[Any, ...]) -> Callable[..., Any]:
    """Give a function that calls a kernel's code with arguments after the first ones."""
    loaded: dict[tuple[Any, ...], Callable[[list[int]], Any]] = {}
    of_first: list[int] = []
    pack(first, [], of_first)

    def call(*arguments: Any) -> Any:
        key: list[Any] = []
        words = of_first.copy()
        pack(arguments, key, words)
        types = tuple(key)
        code = loaded.get(types)
        if code is None:
            with _COMPILING:
                code = loaded.get(types)
                if code is None:
                    code = loaded[types] = _code_of(function, signature_of(first + arguments))
        return code(words)

    return call


def _code_of(function: Callable[..., Any], signature: Signature) -> Callable[[list[int]], Any]:
    """Load a kernel for arguments of some types, or compile it."""
    module, name = function.__module__, function.__qualname__
    if not module.startswith("nadi.") or not name.isidentifier():
        # of a test, say: two functions may have one name
        return load(*compile_anew(function, signature, f"unnamed_{next(_unnamed)}"))
    _in_use[module, name, signature] = None
    entry = kernel_cache.entry_of(module, name, signature)
    found = kernel_cache.find_kernel(module, entry)
    if found is None and _claim is not None:
        _claim(entry)
        found = kernel_cache.find_kernel(module, entry)
    if found is None:
        found = compile_anew(function, signature, entry)
        root = kernel_cache.cache_folder()
        if root is not None:
            with contextlib.suppress(OSError):  # the disk is full: it is compiled again next time
                kernel_cache.keep_kernel(kernel_cache.kernel_place(root, module, entry), found)
    return load(*found)


def compile_anew(function: Callable[..., Any], signature: Signature, entry: str) -> KeptKernel:
    """Compile a kernel's Python function for arguments of some types."""
    from nadi.kernels.numba_internals import compile_kernel

    name = function.__qualname__
    for watcher in _watchers:
        watcher(name, False)
    code, letters = compile_kernel(function, signature, entry)
    for watcher in _watchers:
        watcher(name, True)
    return KeptKernel(code, entry, letters)


def _publicly_compiled(function: _Function) -> _Function:
    """Compile a kernel as numba does it, and keep it as numba does."""
    ready: dict[Signature, Callable[..., Any]] = {}

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        signature = signature_of(arguments)
        if signature not in ready:
            _in_use[function.__module__, function.__qualname__, signature] = None
            from nadi.kernels.numba_public import compile_kernel

            with _COMPILING:
                folder = _folder_of_numba(function.__module__)
                ready[signature] = compile_kernel(function, arguments, folder)
        return ready[signature](*arguments)

    return cast("_Function", call)


def _folder_of_numba(module: str) -> Path | None:
    root = kernel_cache.cache_folder()
    return None if root is None else kernel_cache.folder_of(root, module)


def inner(function: _Function) -> _Function:
    """Compile what only kernels call, put into each of them where it is called."""
    return _helper(function, is_small=True)


def called(function: _Function) -> _Function:
    """Compile what only kernels call and is too long to stand in each of them several times."""
    return _helper(function, is_small=False)


def instead_of(helper: _Function, part: str, stand_in: Callable[..., Any]) -> _Function:
    """Have a stand-in compiled for a helper where a part is left out.

    That is where the first argument is a named tuple of a class whose ``leaves_out`` names the
    part.
    """
    if isinstance(helper, _Helper):
        helper.stand_in = part, stand_in
        return helper
    from nadi.kernels import numba_public

    return cast("_Function", numba_public.leave_out(helper, part, stand_in))


class _Helper:
    """What only kernels call; numba hears of it when one of them is compiled.

    Most processes find their kernels compiled, and have no need of numba.
    """

    def __init__(self, function: Callable[..., Any], make: Callable[[_Helper], Any]) -> None:
        functools.update_wrapper(self, function)
        self._make = make
        self.stand_in: tuple[str, Callable[..., Any]] | None = None

    def __call__(self, *arguments: Any) -> Any:
        return self._made(*arguments)

    @property
    def _numba_type_(self) -> Any:
        """Say what numba is to take it for, which asks for this of any object it meets."""
        from nadi.kernels.numba_internals import type_of

        return type_of(self._made)

    @functools.cached_property
    def _made(self) -> Any:
        return self._make(self)


def _helper(function: _Function, *, is_small: bool) -> _Function:
    if not IS_KNOWN:
        from nadi.kernels import numba_public

        return cast("_Function", numba_public.compile_helper(function, is_small=is_small))

    def make(helper: _Helper) -> Any:
        from nadi.kernels import numba_internals

        return numba_internals.compile_helper(function, helper.stand_in, is_small=is_small)

    return cast("_Function", _Helper(function, make))


def _intrinsic(name: str) -> Any:
    """Give what kernels call that Python has no word for."""
    if not IS_KNOWN:
        return getattr(importlib.import_module("nadi.kernels.numba_public"), name)

    def make(_: _Helper) -> Any:
        return getattr(importlib.import_module("nadi.kernels.numba_intrinsics"), name)

    return _Helper(make, make)


apart = _intrinsic("apart")
borrowed = _intrinsic("borrowed")
count_trailing_zeros = _intrinsic("count_trailing_zeros")
lent = _intrinsic("lent")
load_eight_bytes = _intrinsic("load_eight_bytes")
prefetch = _intrinsic("prefetch")
special_lanes = _intrinsic("special_lanes")
