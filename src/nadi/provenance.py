"""Where a trace came from: files with their hashes, and the version that read them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Provenance", "Source"]


@dataclass(frozen=True)
class Source:
    """One input file: its path, format with version, size and BLAKE2b-128 hash as stored."""

    path: str
    format: str
    size: int
    hash: str


@dataclass(frozen=True)
class Provenance:
    """What a trace was made from, and by which version of Nadi."""

    nadi_version: str
    sources: tuple[Source, ...]
