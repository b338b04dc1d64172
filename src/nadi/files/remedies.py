"""What to do to have more in a recording, by the tool that made it."""

from typing import NamedTuple

from nadi.trace.trace import Trace

NSIGHT, ROCPROF, XPLANE = "Nsight Systems", "rocprofv3", "XPlane"
"""Tools, as the provenance of a trace names them."""


class Remedies(NamedTuple):
    """How users of a tool record more, of which Nadi reads all that it adds.

    Attributes
    ----------
    names
        It names what threads do between operations.
    marks
        It names parts of the program, where functions are named; as ``names`` if it is empty.
    steps
        It tells steps apart.
    idle
        The device has no work when the recording begins.
    """

    names: str
    marks: str = ""
    steps: str = "call step() of torch.profiler.profile after each step"
    idle: str = "call torch.cuda.synchronize() before the recording begins"


OF_PYTORCH = Remedies(
    "record with with_stack=True, which names the Python functions between operations",
    "mark what happens there with torch.profiler.record_function",
)
_OF_OTHERS = {
    NSIGHT: Remedies(
        "record with nsys profile --trace=cuda,nvtx, and mark what happens there with "
        "torch.cuda.nvtx.range; torch.autograd.profiler.emit_nvtx marks all operators",
        steps='put each step into torch.cuda.nvtx.range(f"step {n}")',
    ),
    ROCPROF: Remedies(
        "record with rocprofv3 --sys-trace, which adds the calls of HIP and RCCL, and what the "
        "program marks with roctxRangePush",
        steps='put each step into a range "step N" of roctxRangePush, with --marker-trace',
    ),
    XPLANE: Remedies(
        "record with python_tracer_level = 1 and host_tracer_level = 3 of "
        "jax.profiler.ProfileOptions",
        "mark what happens there with jax.profiler.TraceAnnotation",
        'put each step into jax.profiler.StepTraceAnnotation("train", step_num=n)',
        "call jax.block_until_ready before the recording begins",
    ),
}


def with_option(trace: Trace, option: str) -> str:
    """Return how to record what of all these tools only PyTorch's profiler records."""
    is_pytorch = remedies_of(trace) is OF_PYTORCH
    return f"record with {option}" if is_pytorch else f"torch.profiler records them, with {option}"


def remedies_of(trace: Trace) -> Remedies:
    """Return how users of the tool that recorded a trace record more."""
    tools = (source.format for source in trace.provenance.sources)
    return next((_OF_OTHERS[tool] for tool in tools if tool in _OF_OTHERS), OF_PYTORCH)
