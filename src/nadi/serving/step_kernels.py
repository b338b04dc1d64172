"""How long a step takes: looked up by its tokens, its requests, and the grid of attention."""

from __future__ import annotations

import numpy as np

from nadi.kernels.jit import called, inner
from nadi.serving.engine_columns import BATCH, INSTANCE, SETTING, Engines


@inner
def _place_on(axis: np.ndarray, value: float) -> int:
    """Return the point at or before a value, so that one follows it."""
    low, high = 0, axis.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        if axis[middle] <= value:
            low = middle
        else:
            high = middle
    return low


@called
def _attention(
    engines: Engines, role: int, chunk: float, before: float, decodes: float, context: float
) -> float:
    """Look up attention between the points of the grid: linear along each axis, also beyond."""
    axes, grid = engines.axes, engines.attention[role]
    a = _place_on(axes[0, : grid.shape[0]], chunk)
    b = _place_on(axes[1, : grid.shape[1]], before)
    c = _place_on(axes[2, : grid.shape[2]], decodes)
    d = _place_on(axes[3, : grid.shape[3]], context)
    along_a = (chunk - axes[0, a]) / (axes[0, a + 1] - axes[0, a])
    along_b = (before - axes[1, b]) / (axes[1, b + 1] - axes[1, b])
    along_c = (decodes - axes[2, c]) / (axes[2, c + 1] - axes[2, c])
    along_d = (context - axes[3, d]) / (axes[3, d + 1] - axes[3, d])
    total = 0.0
    for i in range(2):
        of_a = along_a if i else 1.0 - along_a
        for j in range(2):
            of_b = of_a * (along_b if j else 1.0 - along_b)
            if of_b == 0.0:
                continue
            for k in range(2):
                of_c = of_b * (along_c if k else 1.0 - along_c)
                if of_c == 0.0:
                    continue
                near = grid[a + i, b + j, c + k, d]
                far = grid[a + i, b + j, c + k, d + 1]
                total += of_c * (near + along_d * (far - near))
    return total


@called
def step_ns(engines: Engines, instance: int, role: int) -> int:
    """Give the time of the step that was made, and count what it goes to.

    The last chunk of prompts goes along with what generates; each other one is added alone.
    """
    batch, row = engines.batch, engines.instances[instance]
    budget = engines.settings[SETTING.budget]
    decodes, num_chunks = batch[BATCH.decodes], batch[BATCH.chunks]
    context = batch[BATCH.context] / decodes if decodes else 0.0
    dense = engines.dense[role, budget - batch[BATCH.left]]
    heads = engines.heads[role, batch[BATCH.rows]]
    alone = 0.0
    for k in range(num_chunks):
        alone += _attention(
            engines, role, float(engines.chunks[k, 0]), float(engines.chunks[k, 1]), 0.0, 0.0
        )
    beside = 0.0
    if decodes:
        if num_chunks:
            last = num_chunks - 1
            chunk, before = float(engines.chunks[last, 0]), float(engines.chunks[last, 1])
            beside = _attention(engines, role, chunk, before, float(decodes), context)
            beside -= _attention(engines, role, chunk, before, 0.0, 0.0)
        else:
            beside = _attention(engines, role, 0.0, 0.0, float(decodes), context)
    on_device = dense + heads + alone + beside
    host = float(engines.settings[SETTING.host])
    waits = max(0.0, host - on_device) if engines.settings[SETTING.hidden] else host
    row[INSTANCE.dense] += np.int64(dense)
    row[INSTANCE.heads] += np.int64(heads)
    row[INSTANCE.prefill] += np.int64(alone)
    row[INSTANCE.decode] += np.int64(beside)
    row[INSTANCE.host] += np.int64(waits)
    return int(max(1.0, np.rint(on_device + waits)))
