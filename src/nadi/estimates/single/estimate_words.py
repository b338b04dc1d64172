"""What the parts of an estimate are called."""

__all__ = ["PART_NAMES", "TENSOR_NAMES"]

PART_NAMES = {
    "forward": "forward",
    "backward": "backward",
    "ends": "embedding, head and loss",
    "optimizer": "optimizer",
    "computed_again": "recomputation",
    "bubble": "pipeline bubble",
    "tensor_parallel": "exposed tensor parallelism",
    "exchanged_again": "exposed, of recomputation",
    "pipeline_parallel": "exposed pipeline transfers",
    "data_parallel": "exposed data parallelism",
    "forward_offload": "exposed offloading, forward",
    "backward_offload": "exposed offloading, backward",
    "update_offload": "exposed offloading, update",
}
"""What the parts of an estimated step are called."""
TENSOR_NAMES = {
    "weights": "weights",
    "activations": "activations",
    "checkpoints": "checkpoints",
    "activation_gradients": "gradients of activations",
    "weight_gradients": "gradients of weights",
    "optimizer": "optimizer",
    "keys_and_values": "keys and values",
}
"""What the tensors of an estimate are called."""
