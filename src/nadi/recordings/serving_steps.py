"""Steps of serving engines by their annotations: prefill, decode or both, tokens and sequences."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from nadi.trace.work import Lengths


class ServingStep(NamedTuple):
    """What a serving engine does in a step."""

    # ``prefill``, ``decode``, ``mixed``, ``idle``; ``step`` where the engine does not say which
    kind: str
    tokens: int  # new tokens of all sequences, without padding; -1 if they are not stated
    sequences: int  # requests of the step; -1 if they are not stated
    prefill_tokens: int  # of the tokens, those of prompts; -1 if they are not stated
    lengths: Lengths | None = None  # of the sequences; None if the annotation does not state them
    # is_padded: whether tokens and sequences are the size of a graph, which the engine pads to
    is_padded: bool = False
    part: int = 1  # of a model that is captured in several graphs: which of them this mark is of


_SUMS = r"\((?:sq)?(\d++)[^)]*+\)"
_VLLM = re.compile(rf"^execute_(?:\d+_)?context_(\d+){_SUMS}_generation_(\d+){_SUMS}$")
_VLLM_FIRST = re.compile(r"^execute_new_(\d+)_cached_(\d+)$")
_SGLANG = re.compile(r"^step\[(\w+)((?: \w+=\d+)*)\]$")
_ATOM = re.compile(r"^(prefill|decode)\[bs=(\d+)(?:/\d+)? tok=(\d+)[ \]]")
_TENSORRT = re.compile(
    r"^\[Executor\] _forward_step(?: \d+)?: (\d+) ctx reqs, (?:(\d+) ctx tokens, )?(\d+) gen reqs"
)
_REPLAY = re.compile(r"^graph replay: (?:(decode)|part (\d+)) of (?:(\d+) tokens|unknown size)$")
_FIELD = re.compile(r"(\w+)=(\d+)")
_SUM = re.compile(r"(sk|sq|sqsk|sqsq)(\d+)")
_NONE = dict.fromkeys(("sq", "sk", "sqsq", "sqsk"), 0)
_DECODES = ("DECODE", "TARGET_VERIFY", "DRAFT_EXTEND_V2", "DRAFT_EXTEND")


def serving_step(name: str) -> ServingStep | None:
    """Read the annotation of a step of vLLM, SGLang, ATOM or TensorRT-LLM; None if it is none.

    Those of :func:`replay_mark` are read, too.
    """
    for pattern, read in _FORMS:
        if (found := pattern.match(name)) is not None:
            return read(found)
    return None


def replay_mark(size: int, part: int) -> str:
    """Return an annotation for the launch of a graph in a recording whose engine writes none.

    - ``size``: Tokens that it was captured for; -1 if they are not known.
    - ``part``: Which of the graphs of a model it is, from 1; 0 if the whole model is one graph, as
      engines capture it for steps that only decode.
    """
    said = f"{size} tokens" if size >= 0 else "unknown size"
    return f"graph replay: {f'part {part}' if part else 'decode'} of {said}"


def _replay(found: re.Match[str]) -> ServingStep:
    tokens = int(found[3] or -1)
    if found[1]:
        return ServingStep("decode", tokens, tokens, 0, is_padded=True)
    return ServingStep("step", tokens, -1, -1, is_padded=True, part=int(found[2]))


def _of(prefills: int, prefill_tokens: int, decodes: int, decode_tokens: int) -> ServingStep:
    kind = "mixed" if prefills and decodes else "prefill" if prefills else "decode"
    kind = kind if prefills or decodes else "idle"
    return ServingStep(kind, prefill_tokens + decode_tokens, prefills + decodes, prefill_tokens)


def _vllm(found: re.Match[str]) -> ServingStep:
    prompts, outputs = found[0].split("_generation_")
    lengths = _lengths(*(dict(_SUM.findall(one)) for one in (prompts, outputs)))
    return _of(*map(int, found.groups()))._replace(lengths=lengths)


def _lengths(prompts: Mapping[str, str | int], outputs: Mapping[str, str | int]) -> Lengths | None:
    """Return the lengths of sums: ``sq`` new tokens, ``sk`` keys, ``sqsq`` and ``sqsk`` products.

    Of a prompt run the scores that a causal mask leaves, as of operators with a mask; each token
    of an output looks at all before it.
    """
    try:
        (queries, keys, squares, products), (new, old, again, both) = (
            [int(one[name]) for name in ("sq", "sk", "sqsq", "sqsk")] for one in (prompts, outputs)
        )
    except KeyError:
        return None
    twice = 2 * products - squares + 2 * both - (again - new)
    return Lengths(queries + new, keys + old, max(twice // 2, 0))


def _vllm_first(found: re.Match[str]) -> ServingStep:
    # requests that are not new may still read their prompt: only new ones alone say the kind
    new, cached = map(int, found.groups())
    kind = "step" if cached else "prefill" if new else "idle"
    return ServingStep(kind, -1, new + cached, -1)


def _sglang(found: re.Match[str]) -> ServingStep:
    mode, fields = found[1], {key: int(value) for key, value in _FIELD.findall(found[2])}
    sequences = fields.get("bs", -1)
    prompts, outputs = (
        {key[2:]: value for key, value in fields.items() if key.startswith(side)}
        for side in ("c_", "g_")
    )
    if mode == "EXTEND":
        tokens = fields.get("toks", prompts.get("sq", -1))
        lengths = _lengths({"sq": tokens, **prompts}, _NONE)
        return ServingStep("prefill", tokens, sequences, tokens, lengths)
    if mode in _DECODES:
        tokens = outputs.get("sq", sequences)
        lengths = _lengths(_NONE, {"sq": tokens, **outputs})
        return ServingStep("decode", tokens, sequences, 0, lengths)
    if mode == "MIXED":
        prompt, output = prompts.get("sq", -1), outputs.get("sq", fields.get("g", -1))
        known = min(prompt, output) >= 0
        tokens = prompt + output if known else fields.get("toks", -1)
        return ServingStep("mixed", tokens, sequences, prompt, _lengths(prompts, outputs))
    return ServingStep("idle" if mode == "IDLE" else "step", fields.get("toks", -1), sequences, -1)


def _atom(found: re.Match[str]) -> ServingStep:
    tokens = int(found[3])
    prompt = tokens if found[1] == "prefill" else 0
    return ServingStep(found[1], tokens, int(found[2]), prompt)


def _tensorrt(found: re.Match[str]) -> ServingStep:
    prefills, decodes = int(found[1]), int(found[3])
    if found[2] is None and prefills:
        return _of(prefills, 0, decodes, decodes)._replace(tokens=-1, prefill_tokens=-1)
    return _of(prefills, int(found[2] or 0), decodes, decodes)


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], ServingStep]], ...] = (
    (_VLLM, _vllm), (_VLLM_FIRST, _vllm_first), (_SGLANG, _sglang), (_ATOM, _atom),
    (_TENSORRT, _tensorrt), (_REPLAY, _replay),
)  # fmt: skip
