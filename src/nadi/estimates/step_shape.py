"""How a step is cut: blocks on a stage, chunks of them, microbatches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.estimates.estimated_model import ModelDescription
from nadi.estimates.execution import Executions
from nadi.trace.arrays import Floats


class StepShape(NamedTuple):
    """Whole numbers as float64, shape (executions,) or (1,)."""

    stages: Floats  # of the pipeline
    blocks: Floats  # on a stage; where they do not divide, some stages have one less
    missing: Floats  # how many stages have one less
    chunks: Floats  # on a stage, each of consecutive blocks; the last block is its edge block
    chunk_blocks: Floats
    microbatches: Floats  # of one replica


def shape_of(model: ModelDescription, executions: Executions) -> StepShape:
    """Cut a step; what does not divide is rounded as Calculon does, and refused elsewhere."""
    stages = executions.pipeline_par
    blocks = -(-model.num_blocks // stages)
    chunks = executions.pipeline_interleaving
    local_batch = executions.batch_size // executions.data_par
    microbatches = local_batch // executions.microbatch_size
    return StepShape(*(
        np.asarray(column, dtype=float)
        for column in (
            stages, blocks, -model.num_blocks % stages, chunks, -(-blocks // chunks), microbatches,
        )
    ))  # fmt: skip
