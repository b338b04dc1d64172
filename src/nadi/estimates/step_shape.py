"""How a step is cut: blocks on a stage, chunks of them, microbatches."""

from typing import NamedTuple

import numpy as np

from nadi.estimates.estimated_model import ModelDescription
from nadi.estimates.execution import Executions
from nadi.trace.arrays import Floats


class StepShape(NamedTuple):
    """Whole numbers as float64, shape (executions,) or (1,)."""

    stages: Floats  # of the pipeline
    # blocks on a stage, of which embedding and head can count as one each; where they do not
    # divide, some stages have one less
    blocks: Floats
    missing: Floats  # how many stages have one less
    chunks: Floats  # on a stage, each of consecutive blocks; the last block is its edge block
    chunk_blocks: Floats
    microbatches: Floats  # of one replica
    # first, last: blocks of the first and of the last stage, without embedding and head
    first: Floats
    last: Floats

    @property
    def num_blocks(self) -> Floats:
        """Blocks of all stages, without embedding and head."""
        ends = (self.blocks - self.first) * np.where(self.stages > 1, 2.0, 0.0)
        found: Floats = self.blocks * self.stages - self.missing - ends
        return found


def shape_of(model: ModelDescription, executions: Executions) -> StepShape:
    """Cut a step; what does not divide is rounded as Calculon does, and refused elsewhere."""
    stages = executions.pipeline_par
    ends = executions.ends_as_layers
    places = model.num_blocks + 2 * ends
    blocks = -(-places // stages)
    chunks = executions.pipeline_interleaving
    local_batch = executions.batch_size // executions.data_par
    microbatches = local_batch // executions.microbatch_size
    return StepShape(*(
        np.asarray(column, dtype=float)
        for column in (
            stages, blocks, -places % stages, chunks, -(-blocks // chunks), microbatches,
            blocks - ends, blocks - ends - (places % stages > 0),
        )
    ))  # fmt: skip
