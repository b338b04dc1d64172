"""The conditions of a job that is wished for: stated ones, and the rest after a learned job."""

from collections.abc import Mapping
from math import gcd, lcm
from typing import Any, NamedTuple, NoReturn

import numpy as np

from nadi.errors import UsageError
from nadi.sharing.conditional.conditional_model import ConditionalModel
from nadi.sharing.conditional.released_corpus import drawn_of
from nadi.sharing.conditional.stage_values import (
    AXES,
    EXPERTS,
    LABEL,
    SHARED,
    Conditions,
    is_shared_equally,
    micro_batches_of,
    with_usual,
)

_MULTIPLE = 64
_MOST_RANKS, _MOST_VISITS = 1 << 20, 1 << 20
_DRAWN = 512  # jobs as those of a private corpus, of which one is chosen
_KINDS = ("zero",)  # numbers that name something
_NAMES = {"stage_layers": "layers of a stage", "micro_batches": "micro-batches"}


class Wished(NamedTuple):
    """Conditions of a job, and what is beyond those of the jobs that were learned.

    Attributes
    ----------
    conditions
        All of them.
    beyond
        Lines of text, each of one condition.
    """

    conditions: Conditions
    beyond: tuple[str, ...]


def wished_conditions(
    model: ConditionalModel, wishes: Mapping[str, int | str | bool], *, ranks: int = 0,
    seed: int = 0,
) -> Wished:  # fmt: skip
    """Put in what is not stated, as in a learned job of the family, which the seed draws.

    The width of an MLP and the heads follow the hidden size in the job's proportions.

    - ``wishes``: Conditions by name.
    - ``ranks``: Of the whole job, along the data parallel axis what others leave; 0 if it is not
      stated.
    - Raises UsageError if a condition is unknown, was never met, was always the same, or does not
      fit others.
    """
    _check_known(model, wishes)
    base = _base(model, wishes, seed)
    known: Conditions = {**base, **wishes}
    if ranks:
        known |= {axis: 1 for axis in AXES if axis not in wishes}
        inner = int(np.prod([int(known[axis]) for axis in AXES if axis != "dp"]))
        if ranks % inner:
            _refuse("ranks", ranks, f"tp * cp * pp = {inner} does not divide them",
                    f"state a multiple of {inner}, or other axes")  # fmt: skip
        if "dp" in wishes and int(known["dp"]) * inner != ranks:
            _refuse("ranks", ranks, f"dp * tp * cp * pp is {int(known['dp']) * inner}",
                    "leave dp out, or state so many ranks")  # fmt: skip
        known["dp"] = ranks // inner
    _follow_width(base, known, wishes)
    _share_experts(known, wishes)
    if int(known["tp"]) == 1 and "sequence_parallel" in known:
        if wishes.get("sequence_parallel"):
            _refuse("sequence_parallel", value=True, what="there is one tensor parallel rank",
                    remedy="state a tp of 2 or more")  # fmt: skip
        known["sequence_parallel"] = False
    if "max_positions" in known.keys() - wishes.keys():
        known["max_positions"] = max(int(known["max_positions"]), int(known["sequence"]))
    if "global_batch" not in wishes:
        share = int(known["dp"]) * int(known["micro_batch"])
        known["global_batch"] = share * micro_batches_of(base)
    _check_shares(known)
    _check_size(known)
    return Wished(known, (*_beyond(model, known), *_unlike_family(model, wishes)))


def learned_range(model: ConditionalModel) -> dict[str, list[Any]]:
    """Return the different values of each condition of the learned jobs, ascending."""
    found: dict[str, set[Any]] = {}
    for one in model.jobs:
        for name, value in one.items():
            found.setdefault(name, set()).add(value)
    return {
        name: sorted(values, key=lambda one: (str(type(one)), one))
        for name, values in found.items()
    }


def _check_known(model: ConditionalModel, wishes: Mapping[str, int | str | bool]) -> None:
    known = learned_range(model)
    for name, value in wishes.items():
        if name not in known:
            _refuse(name, value, "no learned job states it", f"known are {', '.join(known)}")
        values = known[name]
        is_number = all(isinstance(one, int) and not isinstance(one, bool) for one in values)
        is_given = isinstance(value, int) and not isinstance(value, bool)
        if is_number and not (value in values or (is_given and int(value) > 0)):
            _refuse(name, value, "it has to be a whole number of 1 or more",
                    f"learned were {_range(values)}")  # fmt: skip
        if value not in values and (not is_number or name in _KINDS or len(values) == 1):
            listed = ", ".join(map(_written, values))
            _refuse(name, value, "what it does was not learned", f"learned was {listed}")


def _base(model: ConditionalModel, wishes: Mapping[str, Any], seed: int) -> Conditions:
    """Draw a learned job that has the stated words, as far as any has."""
    random = np.random.default_rng(seed)
    jobs = drawn_of(model.private, random, _DRAWN) if model.private else list(model.jobs)
    for name in wishes:
        jobs = [one for one in jobs if name in one] or jobs
    words = {name: value for name, value in wishes.items() if isinstance(value, str)}
    for name in sorted(words, key=lambda one: one != LABEL):
        jobs = [one for one in jobs if one.get(name) == words[name]] or jobs
    return dict(jobs[int(random.integers(len(jobs)))])


def _follow_width(base: Conditions, known: Conditions, wishes: Mapping[str, Any]) -> None:
    """Let heads and the MLP have the proportions to the hidden size that they have in ``base``."""
    tp = int(known["tp"])
    wider = int(known["hidden"]) / int(base["hidden"])
    if "heads" in base:
        of_key = max(int(base["heads"]) // int(base.get("kv_heads", base["heads"])), 1)
        if "heads" not in wishes:
            multiple = lcm(tp, int(wishes.get("kv_heads", of_key)))
            known["heads"] = max(round(int(base["heads"]) * wider / multiple), 1) * multiple
        heads = int(known["heads"])
        if "kv_heads" in base and "kv_heads" not in wishes:
            keys = heads if heads % of_key else heads // of_key
            known["kv_heads"] = keys if tp % keys == 0 or keys % tp == 0 else tp
    multiple = tp * _MULTIPLE
    for name in {"ffn", "expert_ffn"} & base.keys() - wishes.keys():
        known[name] = max(round(int(base[name]) * wider / multiple), 1) * multiple


def _share_experts(known: Conditions, wishes: Mapping[str, Any]) -> None:
    """Let as many ranks share experts as can; those along tp then have tokens of their own."""
    if EXPERTS not in known:
        return
    if SHARED not in wishes:
        ranks = int(known["cp"]) * int(known["dp"])
        known[SHARED] = gcd(int(known.get(SHARED, 1)), int(known[EXPERTS]), ranks)
    if int(known[SHARED]) > 1 and "sequence_parallel" in known.keys() - wishes.keys():
        known["sequence_parallel"] = True


def _check_shares(known: Conditions) -> None:
    tp, dp = int(known["tp"]), int(known["dp"])
    of_step = dp * int(known["micro_batch"])
    for name, share, of in (
        ("heads", tp, "tp"), ("ffn", tp, "tp"), ("global_batch", of_step, "dp * micro_batch"),
        ("sequence", tp * int(known["cp"]), "tp * cp"),
    ):  # fmt: skip
        if name in known and int(known[name]) % share:
            _refuse(name, known[name], f"{of} = {share} does not divide it",
                    f"state a multiple of {share}")  # fmt: skip
    if EXPERTS in known and not is_shared_equally(known):
        _refuse(SHARED, known[SHARED], "it does not divide experts and tp * cp * dp",
                "state one that divides both")  # fmt: skip
    if int(known.get(SHARED, 1)) > 1 and tp > 1 and not known.get("sequence_parallel", True):
        _refuse(SHARED, known[SHARED], "tensor parallel ranks hold the same tokens",
                "state sequence_parallel, or tp 1")  # fmt: skip
    positions = int(known.get("max_positions", known["sequence"]))
    if int(known["sequence"]) > positions:
        _refuse("sequence", known["sequence"], f"max_positions is {positions}",
                "state a shorter sequence, or more max_positions")  # fmt: skip
    keys = int(known.get("kv_heads", 1))
    if "heads" in known and int(known["heads"]) % keys:
        _refuse("heads", known["heads"], f"kv_heads = {keys} does not divide them",
                f"state a multiple of {keys}, or other kv_heads")  # fmt: skip
    if int(known["layers"]) < int(known["pp"]):
        _refuse("layers", known["layers"], f"there are {known['pp']} stages", "state more layers")


def _check_size(known: Conditions) -> None:
    """Refuse jobs that no memory holds; the largest stage has a program of its own."""
    ranks = int(np.prod([float(known[axis]) for axis in AXES]))
    visits = -(-int(known["layers"]) // int(known["pp"])) * micro_batches_of(known)
    if ranks > _MOST_RANKS:
        _refuse("ranks", ranks, f"at most {_MOST_RANKS:,} are made", "ask for fewer")
    if visits * int(known["pp"]) > _MOST_VISITS:
        _refuse("layers", known["layers"], "layers times micro-batches are too many operations",
                "ask for fewer layers, or a smaller global_batch")  # fmt: skip
    with_usual(known, "conditions")


def _beyond(model: ConditionalModel, known: Conditions) -> list[str]:
    """Return which numbers are outside of those of the learned jobs."""
    found = []
    jobs = [_counts(one) for one in model.jobs]
    for name, value in _counts(known).items():
        learned = [one[name] for one in jobs if name in one]
        if learned and not min(learned) <= value <= max(learned):
            least, most = f"{min(learned):,}", f"{max(learned):,}"
            found.append(f"{_NAMES.get(name, name)} {value:,} (learned {least} to {most})")
    return found


def _unlike_family(model: ConditionalModel, wishes: Mapping[str, Any]) -> list[str]:
    """Return which stated words no learned job of the stated family has."""
    family = wishes.get(LABEL)
    jobs = [one for one in model.jobs if one.get(LABEL) == family]
    found = []
    for name, value in wishes.items():
        if name != LABEL and jobs and isinstance(value, (str, bool)):
            learned = sorted({_written(one[name]) for one in jobs if name in one})
            if learned and _written(value) not in learned:
                found.append(f"{name} {_written(value)} of family {family} "
                             f"(learned {', '.join(learned)})")  # fmt: skip
    return found


def _counts(known: Mapping[str, int | str | bool]) -> dict[str, int]:
    """Return the numbers that matter by themselves: of a stage and a micro-batch, not of a step."""
    found = {
        name: value for name, value in known.items()
        if isinstance(value, int) and not isinstance(value, bool)
        and name not in ("layers", "global_batch", "zero")
    }  # fmt: skip
    found["stage_layers"] = -(-int(known["layers"]) // int(known["pp"]))
    found["micro_batches"] = micro_batches_of(known)
    return found


def _range(values: list[Any]) -> str:
    return f"{_written(values[0])} to {_written(values[-1])}" if len(values) > 1 else str(values[0])


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refuse(name: str, value: object, what: str, remedy: str) -> NoReturn:
    raise UsageError(f"{name} {_written(value)}", what, remedy)
