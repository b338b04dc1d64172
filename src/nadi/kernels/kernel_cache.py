"""Where compiled kernels are kept, and found: one file for each kernel and types of arguments.

Code that is found is run. So a folder into which others could write is not used, and a file
that is damaged is not either.

Code is named by what it was made from: a module's source, and all it imports of Nadi. Numba's own
cache looks at the file of a kernel only, and would run old code after an edit of a helper in
another file. A name for all kernels together would compile all of them anew after an edit of one.
"""

import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from nadi.kernels.object_code import host_cpu, host_features
from nadi.kernels.signatures import Signature, as_lists

BUILT = "built_kernels"  # the folder of a wheel's own, beside the sources
_MONTH = 30 * 24 * 3600
# settings of numba that change what a kernel does, or how
_SETTINGS = ("BOUNDSCHECK", "OPT", "CPU_NAME", "CPU_FEATURES", "LOOP_VECTORIZE", "SLP_VECTORIZE")


class KeptKernel(NamedTuple):
    """What is needed to call a compiled kernel."""

    code: bytes  # an object
    entry: str  # the name of its function
    letters: str  # what it returns


@functools.cache
def compilers() -> dict[str, str]:
    """Give the versions of numba and llvmlite, which are not imported for it."""
    return {name: _version(name) for name in ("numba", "llvmlite")}


def _version(package: str) -> str:
    found = importlib.util.find_spec(package)
    for place in (found.submodule_search_locations if found else None) or ():
        for folder in Path(place).parent.glob(f"{package}-*.dist-info"):
            return folder.name.removesuffix(".dist-info").partition("-")[2]
    from importlib.metadata import version  # which imports what reads mails, and seldom comes up

    return version(package)


@functools.cache
def _surroundings() -> str:
    """Name what kernels are compiled by, and for."""
    settings = [os.environ.get(f"NUMBA_{name}", "") for name in _SETTINGS]
    named = [sys.version_info[:2], sys.platform, compilers(), host_cpu(), sorted(host_features())]
    text = json.dumps([named, settings])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


# folders


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


def _is_ours_alone(path: Path) -> bool:
    """Tell whether nobody but this user and root can change what is at a path.

    In a folder with the sticky bit, as of temporary files, others cannot replace what is not
    theirs.
    """
    path = path.resolve()
    found = {place: place.stat() for place in (path, *path.parents)}
    return _only_we_write(found.pop(path)) and all(
        _only_we_write(about, is_above=True) for about in found.values()
    )


def _only_we_write(about: os.stat_result, *, is_above: bool = False) -> bool:
    """Tell whether a file or folder belongs to this user or root, and others cannot write to it.

    A group with the number of its only user is as good as the user.
    """
    if not hasattr(os, "geteuid"):
        return True  # Windows: the folders that are tried belong to the user
    trusted = (0, os.geteuid())
    if about.st_uid not in trusted:
        return False
    others = stat.S_IWOTH | (0 if about.st_gid in trusted else stat.S_IWGRP)
    return not about.st_mode & others or bool(is_above and about.st_mode & stat.S_ISVTX)


def _usable(folder: Path) -> bool:
    """Tell by trying whether files can be written under a folder, by this user alone."""
    try:
        # mkdir(parents=True) would leave to the umask who can write to those in between
        for place in (*reversed(folder.parents), folder):
            if not place.exists():
                place.mkdir(exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x" * 4096)
        return _is_ours_alone(folder)
    except OSError:
        return False


@functools.cache
def cache_folder() -> Path | None:
    """Give the folder in which compiled kernels are kept: the first that can be written to."""
    name = f"kernels-{_surroundings()}"
    for root in _roots():
        if _usable(root / name):
            with contextlib.suppress(OSError):
                os.utime(root / name)  # in use: not to be forgotten
            _forget_unused(root, "kernels-*")
            _forget_unused(root / name, "*")
            return root / name
    return None


@functools.cache
def _unwritable_folder() -> Path | None:
    """Give the first folder with kernels, for a disk that is full or can only be read."""
    folders = [root / f"kernels-{_surroundings()}" for root in _roots()]
    with contextlib.suppress(OSError):
        return next((one for one in folders if one.is_dir() and _is_ours_alone(one)), None)
    return None


def _forget_unused(root: Path, pattern: str) -> None:
    """Remove code that nobody has run for a month."""
    limit = time.time() - _MONTH
    for folder in root.glob(pattern):
        with contextlib.suppress(OSError):
            if folder.stat().st_mtime < limit:
                shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _built_folder() -> Path | None:
    """Give the folder of kernels that came with a wheel, if they were built for what is here."""
    folder = Path(__file__).parents[1] / BUILT
    try:
        about = json.loads((folder / "about.json").read_bytes())
        if not _is_ours_alone(folder):
            return None
    except (OSError, ValueError):
        return None
    if not isinstance(about, dict) or any(f"NUMBA_{name}" in os.environ for name in _SETTINGS):
        return None
    here, features = surroundings_of_wheel(), about.get("features")
    is_same = all(about.get(key) == value for key, value in here.items())
    has_all = isinstance(features, list) and host_features().issuperset(map(str, features))
    return folder if is_same and has_all else None


def surroundings_of_wheel() -> dict[str, str]:
    """Give what has to be the same where kernels are built for a wheel, and where they run."""
    numba = ".".join(compilers()["numba"].split(".")[:2])
    return {
        "python": f"{sys.implementation.name}{sys.version_info[0]}{sys.version_info[1]}",
        "numba": numba,
        "llvmlite": compilers()["llvmlite"],
        "triple": host_cpu().split()[0],
    }


# files


def folder_of(root: Path, module: str) -> Path:
    """Give the folder below ``root`` of all kernels of a module, until one imported changes."""
    return root / f"{module.rpartition('.')[2]}-{source_digest(module)}"


def entry_of(module: str, name: str, signature: Signature) -> str:
    """Give the name of a kernel's function in its object, which no other kernel has."""
    text = json.dumps(as_lists(signature), separators=(",", ":"))
    digest = hashlib.blake2b(f"{module} {text}".encode(), digest_size=8).hexdigest()
    return f"nadi_{name}_{source_digest(module)}_{digest}"


def kernel_place(root: Path, module: str, entry: str) -> Path:
    """Give the file below ``root`` of a compiled kernel."""
    return folder_of(root, module) / f"{entry}.kernel"


def _places(module: str, entry: str) -> list[Path]:
    roots = (_built_folder(), cache_folder() or _unwritable_folder())
    return [kernel_place(root, module, entry) for root in roots if root is not None]


def is_there(module: str, entry: str) -> bool:
    """Tell whether a compiled kernel is in the wheel or in the cache; not whether it is whole."""
    return any(place.exists() for place in _places(module, entry))


def find_kernel(module: str, entry: str) -> KeptKernel | None:
    """Find a compiled kernel, in the wheel or in the cache."""
    for place in _places(module, entry):
        if found := _read(place, entry):
            return found
    return None


def _read(path: Path, entry: str) -> KeptKernel | None:
    try:
        if not (_only_we_write(path.parent.stat()) and _only_we_write(path.stat())):
            return None
        head, _, code = path.read_bytes().partition(b"\n")
        about: Any = json.loads(head)
        checksum = hashlib.blake2b(code, digest_size=16).hexdigest()
        if about["entry"] == entry and about["checksum"] == checksum:
            return KeptKernel(code, entry, str(about["letters"]))
    except (OSError, ValueError, KeyError, TypeError):  # not there, or damaged: compiled anew
        pass
    return None


def keep_kernel(path: Path, kept: KeptKernel) -> None:
    """Write a compiled kernel, whole or not at all; raises OSError."""
    checksum = hashlib.blake2b(kept.code, digest_size=16).hexdigest()
    about = {"entry": kept.entry, "letters": kept.letters, "checksum": checksum}
    path.parent.mkdir(exist_ok=True, mode=0o700)
    with contextlib.suppress(OSError):
        os.utime(path.parent)  # in use: not to be forgotten
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(json.dumps(about).encode() + b"\n" + kept.code)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


# digests of sources

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
            to_follow.extend(_source_of(name)[1])
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(found):
        digest.update(name.encode() + b"\0" + _source_of(name)[0])
    return digest.hexdigest()


@functools.cache
def _source_of(module: str) -> tuple[bytes, tuple[str, ...]]:
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
