"""What estimates and simulations assume of moves between tiers: buffers, and one update.

The update of weights is elementwise. If they or their optimizer states live in a lower tier, it
works on one part after the other: while a part is updated, the next one is loaded, and the one
before is stored. None is updated before all gradients are final, as they are clipped by their norm.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from nadi.trace.arrays import Floats, Ints

UPDATE_SCHEDULE = (
    "the optimizer's state is updated in parts when all gradients are final, because their norm "
    "clips them; while a part is updated, the next one is loaded and the previous one is stored, "
    "and all loads and stores end within the step"
)
_PARTS = 64
_LEAST = 4 << 20  # bytes of a part
_Sizes = TypeVar("_Sizes", Floats, Ints)


def usual_buffers(capacity: Floats | float) -> Floats:
    """Return the bytes of the first tier in which tensors of others pass, of a capacity.

    0 is an unknown capacity.
    """
    return np.where(np.asarray(capacity) > 0, np.asarray(capacity) / 16, 1 << 30)


def update_parts(size: _Sizes) -> _Sizes:
    """Return in how many parts states of so many bytes are updated."""
    return np.clip(size // _LEAST, 1, _PARTS)


def streamed_seconds(
    size: Floats, load: Floats, work: Floats, store: Floats, *, duplex: bool = True
) -> Floats:
    """Give the seconds of an update with all of its moves.

    The first part has to be loaded before, and the last one is stored after all others.

    Parameters
    ----------
    size
        Bytes of the states.
    load, work, store
        Seconds of loading all, of the update alone, and of storing all.
    duplex
        Whether loads and stores move at once.
    """
    longest = np.maximum(load, store) if duplex else load + store
    share = 1.0 / update_parts(np.asarray(size, dtype=np.float64))
    found: Floats = share * (load + work + store) + (1.0 - share) * np.maximum(longest, work)
    return found
