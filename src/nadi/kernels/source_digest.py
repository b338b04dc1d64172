"""A name for what compiled code was made from: a module's source, and all it imports of Nadi.

Numba's own cache looks at the file of a kernel only, and would run old code after an edit of a
helper in another file. A name for all kernels together would compile all of them anew after an
edit of one.
"""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_IMPORT = re.compile(
    rb"^[ \t]*(?:from (nadi(?:\.\w+)*) import ([^(\n]+|\([^)]*\))|import (nadi(?:\.\w+)*))", re.M
)
_NAME = re.compile(rb"\w+")
# every kernel's module imports this one, which finds and loads code: what compiles it counts
_JIT, _COMPILERS = "nadi.kernels.jit", ("nadi.kernels.numba_internals", "nadi.kernels.numba_public")


@functools.cache
def source_digest(module: str) -> str:
    """Give 16 hexadecimal digits for a module of Nadi and the modules that it imports.

    Those that these import count as well, and so do imports within functions. A module that
    is not Nadi's, or has no source here, has a digest of its name alone.
    """
    found: set[str] = set()
    to_follow = [module]
    while to_follow:
        name = to_follow.pop()
        if name not in found:
            found.add(name)
            to_follow.extend(_read(name)[1])
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(found):
        digest.update(name.encode() + b"\0" + _read(name)[0])
    return digest.hexdigest()


@functools.cache
def _read(module: str) -> tuple[bytes, tuple[str, ...]]:
    """Give the digest of one module's source, and what modules of Nadi it names in imports."""
    file = _file_of(module)
    if file is None:
        return b"", ()
    if module == _JIT:
        return b"", _COMPILERS
    source = file.read_bytes()
    named = []
    for package, names, whole in _IMPORT.findall(source):
        parent = (package or whole).decode()
        named.append(parent)
        named += [f"{parent}.{name.decode()}" for name in _NAME.findall(names)]
    digest = hashlib.blake2b(source, digest_size=16).digest()
    return digest, tuple(name for name in named if _file_of(name) is not None)


@functools.cache
def _file_of(module: str) -> Path | None:
    place = _ROOT.joinpath(*module.split("."))
    for file in (place.with_suffix(".py"), place / "__init__.py"):
        if module.startswith("nadi.") and file.is_file():
            return file
    return None
