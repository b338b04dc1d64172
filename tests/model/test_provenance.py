"""Files by their hashes, which are computed when somebody asks."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import msgspec
import numpy as np
import pytest

import nadi
from nadi.trace.trace import Source

_TRACE = b'{"traceEvents": []}'


@pytest.mark.parametrize("stored", [_TRACE, gzip.compress(_TRACE), b"\xef\xbb\xbf" + _TRACE])
def test_hash_is_of_the_file_as_stored(tmp_path: Path, stored: bytes) -> None:
    path = tmp_path / "device.json"
    path.write_bytes(stored)
    (source,) = nadi.read(path).provenance.sources
    assert source.size == len(stored)
    assert source.hash == hashlib.blake2b(stored, digest_size=16).hexdigest()


def test_a_source_is_a_plain_value() -> None:
    given = Source("a", "Kineto", 3, hashlib.blake2b(b"abc", digest_size=16).hexdigest())
    content = np.frombuffer(b"abc", dtype=np.uint8)
    assert Source.of("a", "Kineto", content) == given
    assert msgspec.to_builtins(Source.of("a", "Kineto", content)) == msgspec.to_builtins(given)
    assert not hasattr(Source.of("a", "Kineto", content), "color")
