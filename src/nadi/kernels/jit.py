"""One decorator for every compiled kernel, and where compiled code is kept.

Numba compiles a kernel at its first call and can keep the result on disk. Two
things go wrong there, and are handled here: its cache does not notice an edited
callee in another file, so the folder is named after all that a kernel's module imports;
and it refuses to work when no folder is writable, so then nothing is kept and
each process compiles anew: slower, never a failure.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, cast

import numba
from numba import types
from numba.core import config
from numba.core.errors import NumbaError
from numba.extending import intrinsic

from nadi.kernels.source_digest import source_digest

__all__ = ["borrowed", "cache_folder", "called", "compiled_before", "inner", "kernel"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
# versions whose inner parts are as kernels/_pipeline.py wants them; others compile in their own
# way, which takes longer
_KNOWN_NUMBA = (0, 60) <= tuple(map(int, numba.__version__.split(".")[:2])) <= (0, 68)


def _surroundings() -> str:
    """Name what kernels are compiled by, and where they stand."""
    package = Path(__file__).parents[1]
    named = f"{numba.__version__} {platform.python_version()} {package}"
    return hashlib.blake2b(named.encode(), digest_size=8).hexdigest()


def _roots() -> list[Path]:
    """Folders to try, best first: the user's choice, their cache, the package's own folder."""
    roots = []
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        roots.append(Path(chosen) / "nadi")
    if base := os.environ.get("XDG_CACHE_HOME"):
        roots.append(Path(base) / "nadi")
    else:
        with contextlib.suppress(RuntimeError):  # no home folder is known for this user
            roots.append(Path.home() / ".cache" / "nadi")
    roots.append(Path(__file__).parent / "__pycache__")
    return roots


def _usable(folder: Path) -> bool:
    """Tell by trying whether files can be written under ``folder``."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x" * 4096)
    except OSError:
        return False
    return True


def _cache_folder() -> Path | None:
    """Choose the folder for compiled code, the first that can be written to."""
    name = f"kernels-{_surroundings()}"
    for root in _roots():
        if _usable(root / name):
            with contextlib.suppress(OSError):
                os.utime(root / name)  # in use: not to be forgotten
            _forget_unused(root, "kernels-*")
            _forget_unused(root / name, "*")
            return root / name
    return None


def _forget_unused(root: Path, pattern: str) -> None:
    """Remove code that nobody has run for a month."""
    limit = time.time() - 30 * 24 * 3600
    for folder in root.glob(pattern):
        with contextlib.suppress(OSError):
            if folder.stat().st_mtime < limit:
                shutil.rmtree(folder, ignore_errors=True)


_FOLDER = _cache_folder()
# numba's setting is that of the whole process, and a list is read by two threads: one would set it
# back while the other makes its kernel, which would then be kept wherever the process happens to be
_COMPILING = Lock()


def cache_folder() -> Path | None:
    """Give the folder in which compiled kernels are kept, if any can be written to."""
    return _FOLDER


def compiled_before() -> bool:
    """Tell whether compiled kernels of this version were found on disk."""
    return _FOLDER is not None and any(_FOLDER.rglob("*.nbi"))


def kernel(function: _Function) -> _Function:
    """Compile ``function`` in nopython mode when it is first called.

    What is compiled is kept on disk where a folder allows it.
    """
    compiled: Callable[..., Any] | None = None

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        nonlocal compiled
        if compiled is None:
            with _COMPILING:
                compiled = compiled or _compile(function, _folder_of(function))
        try:
            return compiled(*arguments)
        except NumbaError:
            raise  # the caller's mistake: arguments of a wrong type
        except Exception:
            if _FOLDER is None:
                raise
            # what is kept may be damaged, or the disk full: do without it
            shutil.rmtree(_folder_of(function) or "", ignore_errors=True)
            with _COMPILING:
                compiled = _compile(function, None)
            return compiled(*arguments)

    return cast("_Function", call)


def inner(function: _Function) -> _Function:
    """Compile what only kernels call, put into each of them where it is called."""
    return _helper(function, forceinline=True)


def called(function: _Function) -> _Function:
    """Compile what only kernels call and is too long to stand in each of them several times."""
    return _helper(function, forceinline=False)


@intrinsic
def borrowed(typing_context: Any, array: Any) -> Any:
    """Give an array that is not counted as in use: kernels count theirs at every call.

    Only for arguments, which the caller holds on to meanwhile.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = context.make_array(signature.args[0])(context, builder, arguments[0])
        for name in ("meminfo", "parent"):
            setattr(found, name, getattr(found, name).type(None))
        return found._getvalue()

    return array(array), generate


class _Helper:
    """A function that only kernels call; numba hears of it when one of them is compiled.

    Most processes find their kernels compiled, and would prepare all helpers for nothing.
    """

    def __init__(self, function: Callable[..., Any], *, forceinline: bool) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._forceinline = forceinline

    def __call__(self, *arguments: Any) -> Any:
        return self._dispatcher(*arguments)

    @property
    def _numba_type_(self) -> Any:
        """Say what numba is to take it for, which asks for this of any object it meets."""
        return self._dispatcher._numba_type_

    @functools.cached_property
    def _dispatcher(self) -> Any:
        options: dict[str, Any] = {}
        if _KNOWN_NUMBA:
            from nadi.kernels.numba_pipeline import HELPER_OPTIONS

            options = HELPER_OPTIONS
        compiler: Any = numba
        compiled = compiler.njit(self._function, forceinline=self._forceinline, **options)
        if compiled is self._function:
            return compiled  # nothing is compiled: NUMBA_DISABLE_JIT
        template_of = compiled.get_call_template
        unliteral: Any = types.unliteral

        def template_for_types(arguments: Any, named: Any) -> Any:
            # a number written out is a type of its own to numba: do not compile for each anew
            return template_of([unliteral(a) for a in arguments], named)

        compiled.get_call_template = template_for_types
        return compiled


def _helper(function: _Function, *, forceinline: bool) -> _Function:
    return cast("_Function", _Helper(function, forceinline=forceinline))


def _folder_of(function: Callable[..., Any]) -> Path | None:
    """Give where a kernel is kept: with the others of its module, until one imported changes."""
    if _FOLDER is None:
        return None
    module = function.__module__
    folder = _FOLDER / f"{module.rpartition('.')[2]}-{source_digest(module)}"
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True)
        os.utime(folder)  # in use: not to be forgotten
    return folder


def _compile(function: Callable[..., Any], folder: Path | None) -> Callable[..., Any]:
    # the folder is numba's setting for all code of the process: it is ours only meanwhile
    settings: Any = config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = str(folder or "")
    compiler: Any = numba
    try:
        if not _KNOWN_NUMBA:
            found: Callable[..., Any] = compiler.njit(
                function, cache=folder is not None, nogil=True
            )
            return found
        from nadi.kernels.numba_pipeline import KERNEL_OPTIONS, keep

        compiled: Callable[..., Any] = compiler.njit(function, nogil=True, **KERNEL_OPTIONS)
        if folder is not None and compiled is not function:
            keep(compiled)
        return compiled
    finally:
        settings.CACHE_DIR = before
