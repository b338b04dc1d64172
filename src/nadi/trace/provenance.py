"""The origin of a trace: files with their hashes, and the version of Nadi that read them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nadi.trace.arrays import Bytes

__all__ = ["Provenance", "Source"]


@dataclass(frozen=True)
class Source:
    """One input file: its path, format with version, size and BLAKE2b-128 hash as stored."""

    path: str
    format: str
    size: int
    hash: str

    @classmethod
    def of(cls, path: str, format_name: str, stored: Bytes) -> Source:
        """Describe a file by its bytes, uint8; the hash is computed on first access.

        Hashing takes as long as reading, and is rarely needed.
        """
        source = cls.__new__(cls)
        vars(source).update(path=path, format=format_name, size=stored.size, _stored=stored)
        return source

    if not TYPE_CHECKING:  # which would take any name for an attribute

        def __getattr__(self, name: str) -> str:
            stored = vars(self).get("_stored")
            if name != "hash" or stored is None:
                raise AttributeError(name, name=name, obj=self)
            digest = hashlib.blake2b(stored.data, digest_size=16).hexdigest()
            vars(self).update(hash=digest, _stored=None)
            return digest


@dataclass(frozen=True)
class Provenance:
    """The files from which a trace was made, and the version of Nadi that made it."""

    nadi_version: str
    sources: tuple[Source, ...]
