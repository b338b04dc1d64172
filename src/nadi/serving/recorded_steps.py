"""Steps of a serving engine in a recording, and times of steps that agree with them."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from nadi.errors import InputError, Parameter, UsageError
from nadi.estimates.inference_steps import inference_parts
from nadi.graph.edges.job_graph import build_graph
from nadi.graph.event_graph import EventGraph
from nadi.graph.windows import find_steps, steps_of_operations
from nadi.kernels.sequences import union_length
from nadi.models.llm.language_model import LanguageModel
from nadi.models.llm.parallel_plan import ParallelPlan
from nadi.recordings.job_of_files import load_job
from nadi.recordings.serving_steps import ServingStep
from nadi.serving.step_times import StepTimes, padded
from nadi.systems.system import System
from nadi.trace.arrays import Bools, Floats
from nadi.trace.schema import DEVICE_WORK
from nadi.units import format_ns

_FAR = 1000  # times its price is a step of another model


class RecordedStep(NamedTuple):
    """A step of a recorded engine.

    Attributes
    ----------
    kind
        Of ``prefill``, ``decode`` and ``mixed``.
    chunks, read
        Prompts that it reads, and how many of their tokens.
    decodes
        Requests that generate.
    before
        Tokens before each of these, or before each chunk if none generates; -1 if not recorded.
    measured
        ns in which the device works for it; of several ranks, the longest.
    priced
        ns that the same step is priced at.
    """

    kind: str
    chunks: int
    read: int
    decodes: int
    before: int
    measured: int
    priced: int = 0

    @property
    def tokens(self) -> int:
        """Those that it computes."""
        return self.read + self.decodes


def read_recorded_steps(path: str | Path) -> tuple[RecordedStep, ...]:
    """Read the steps of a serving engine from a recording (vLLM, SGLang, ATOM or TensorRT-LLM).

    A step takes as long as its device works: the union of what is launched in it. Waits between
    steps belong to the host, and are left out.

    Parameters
    ----------
    path
        A device trace, or a folder with those of several ranks.

    Raises
    ------
    InputError
        If it cannot be read, or states no step with its tokens.
    """
    graph = build_graph(load_job(path))
    steps = find_steps(graph)
    step_of = steps_of_operations(graph, steps)
    works = graph.gather("category").is_in(DEVICE_WORK).to_numpy()
    found = []
    for number, step in enumerate(steps):
        took = _busy(graph, works & (step_of == number))
        if step.serving is not None and took and (one := _of_annotation(step.serving, took)):
            found.append(one)
    if not found:
        raise InputError(
            str(path), "has no step of a serving engine that states its tokens, with device work",
            "record steps with annotations, as vLLM and SGLang write them, or give a folder with "
            "dense.csv, per_sequence.csv and attention.csv",
        )  # fmt: skip
    return tuple(found)


def _busy(graph: EventGraph, chosen: Bools) -> int:
    """Return how long devices work at some operations: of the rank that works longest."""
    rank = graph.op_trace[chosen]
    times = graph.time.reshape(-1, 2)[chosen]
    return max((union_length(*times[rank == one].T) for one in np.unique(rank)), default=0)


def _of_annotation(step: ServingStep, took: int) -> RecordedStep | None:
    """Give a step as its annotation states it; None if that does not tell its tokens."""
    if min(step.tokens, step.sequences, step.prefill_tokens) < 0 or not step.tokens:
        return None
    # with guesses, a request that generates computes more tokens than one
    decodes = min(step.tokens - step.prefill_tokens, step.sequences - (step.prefill_tokens > 0))
    chunks = step.sequences - decodes if step.prefill_tokens else 0
    before = -1
    if step.lengths is not None:
        # of a mixed step, prompts begin with their chunk: the annotation has one sum for both
        before = max(step.lengths.keys - step.prefill_tokens, 0) // max(decodes or chunks, 1)
    return RecordedStep(step.kind, chunks, step.prefill_tokens, decodes, before, took)


def priced_steps(
    model: LanguageModel, system: System, plan: ParallelPlan, steps: tuple[RecordedStep, ...],
    before: int, *, graphs: bool, kv_dtype: str = "", weight_bits: int = 0,
) -> tuple[RecordedStep, ...]:  # fmt: skip
    """Price recorded steps as a server's.

    - ``before``: Tokens before each request that generates, where the recording does not state
      them.
    - ``graphs``: Whether they are padded to the sizes of CUDA graphs.
    - Raises UsageError if one takes a thousand times its price, or a thousandth of it.
    """

    def priced(step: RecordedStep) -> RecordedStep:
        known = step.before if step.before >= 0 else before
        tokens = int(padded(np.array([step.tokens]))[0]) if graphs else step.tokens
        behind = 0 if step.decodes else known
        parts = inference_parts(
            model, system, plan, np.array([tokens, max(step.decodes + step.chunks, 1)]),
            (np.array([-(-step.read // max(step.chunks, 1)) or 1]), np.array([behind])),
            (np.array([max(step.decodes, 1)]), np.array([max(known, 1)])), kv_dtype, weight_bits,
        )  # fmt: skip
        seconds = float(parts.dense[0] + parts.heads[1])
        if step.chunks:
            alone, beside = float(parts.chunks[0, 0]), float(parts.crowded[0, 0])
            seconds += max(alone, step.chunks * beside)
        seconds += bool(step.decodes) * float(parts.decodes[0, 0])
        return _near_price(step._replace(priced=max(round(seconds * 1e9), 1)))

    return tuple(map(priced, steps))


def _near_price(step: RecordedStep) -> RecordedStep:
    """Give a step that may be one of the model on the system."""
    if not step.priced / _FAR < step.measured < step.priced * _FAR:
        took, price = format_ns(step.measured), format_ns(step.priced)
        raise UsageError(
            Parameter("measured"),
            f"a {step.kind} step of {step.tokens} tokens takes {took}, and is priced at {price}",
            "give a recording of the same model on such a system",
        )  # fmt: skip
    return step


def times_as_recorded(times: StepTimes, steps: tuple[RecordedStep, ...]) -> StepTimes:
    """Make priced times agree with recorded steps.

    A part is longer by a factor that depends on the tokens which it computes: the median of the
    recorded steps with as many, linear in the logarithm of the tokens between them, and that of
    the nearest beyond them.
    """
    tokens = np.array([step.tokens for step in steps], dtype=float)
    if times.graphs:
        tokens = padded(tokens)
    ratios = np.array([step.measured / step.priced for step in steps])
    sizes = np.unique(tokens)
    medians = np.array([np.median(ratios[tokens == size]) for size in sizes])

    def longer(size: Floats) -> Floats:
        found: Floats = np.interp(np.log(np.maximum(size, 1.0)), np.log(sizes), medians)
        return found

    chunks, _, decodes, _ = times.axes
    together = chunks[:, None, None, None] + decodes[None, None, :, None]
    by_tokens = longer(times.tokens)
    return times._replace(
        dense=times.dense * by_tokens, heads=times.heads * longer(times.rows),
        attention=times.attention * longer(together),
        bound=None if times.bound is None else times.bound * by_tokens,
        experts=None if times.experts is None else times.experts * by_tokens,
        crowded=None if times.crowded is None else times.crowded * longer(chunks)[:, None],
    )  # fmt: skip
