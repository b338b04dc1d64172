"""A timeline as text for a page: columns as planes of bytes, compressed, in base64.

The text is base64 of gzip of: the length of a header (4 bytes, little-endian), the header (JSON),
and the planes. Plane k of a column has byte k of each of its numbers; planes of zeros alone are
left out, and numbers that can be negative are zigzag-coded. ``timeline_data.js`` reads it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from isal import igzip

from nadi.trace.arrays import Ints

__all__ = ["packed"]

_LEVEL = 3


def packed(header: dict[str, Any], columns: Mapping[str, Ints]) -> str:
    """Pack a header and columns of integers, of at most 53 bits, into a text.

    Columns whose numbers can be negative have a name that ends in ``±``.
    """
    listed: list[dict[str, Any]] = []
    planes: list[bytes] = []
    for name, values in columns.items():
        coded = np.ascontiguousarray(_zigzag(values) if name.endswith("±") else values, "<i8")
        of_bytes = coded.view(np.uint8).reshape(-1, 8)
        largest = int(coded.max(initial=0))
        kept = [k for k in range(8) if largest >> (8 * k) and of_bytes[:, k].any()]
        planes += [of_bytes[:, k].tobytes() for k in kept]
        listed.append({"name": name, "size": coded.size, "planes": kept})
    head = msgspec.json.encode({**header, "columns": listed})
    content = b"".join([len(head).to_bytes(4, "little"), head, *planes])
    return base64.b64encode(igzip.compress(content, _LEVEL)).decode()


def _zigzag(values: Ints) -> Ints:
    """Make numbers of both signs small ones without: 0, -1, 1, -2 become 0, 1, 2, 3."""
    coded: Ints = (values << 1) ^ (values >> 63)
    return coded
