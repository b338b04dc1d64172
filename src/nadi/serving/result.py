"""What ``nadi serve`` says: rates, latencies with intervals, what bounds, memory, and cost."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nadi.results.declared import (
    COUNT,
    NAME,
    NS,
    Column,
    Lines,
    Result,
    Rows,
    in_words,
    number,
    share_of,
)
from nadi.serving.engines import ServedRequests
from nadi.serving.served import METRICS, Serving, measures, within_limits
from nadi.trace.arrays import Floats
from nadi.units import format_bytes, format_count, format_counted, format_ns, format_number

_LEVELS = (5.0, 95.0)  # between which nine of ten seeds lie
_PERCENTILES = (50, 90, 95, 99)
_TITLES = {"ttft": "time to first token", "tpot": "time per output token", "e2e": "to last token"}
_OPTIONAL_NS = number(format_ns, "")
_BETWEEN = in_words(
    lambda value: "" if value is None else f"{format_ns(value[0])} to {format_ns(value[1])}"
)
_BYTES, _COUNT = number(format_bytes, ""), number(format_count, "")
_SHARE = number(lambda share: f"{100 * share:.1f} %", "")
_WHY = {
    "arrivals": "no request waited", "tokens": "the step had all tokens of its budget",
    "sequences": "as many requests ran as may", "blocks": "keys and values had no room",
    "loads": "keys and values were loaded", "prompts": "prompts waited for more of them",
}  # fmt: skip
_SPENT = {
    "memory": "kernels of layers, bound by memory",
    "compute": "kernels of layers, bound by computation", "network": "collectives",
    "prefill": "attention of prompts",
    "decode": "attention of generated tokens", "heads": "logits and samples",
    "host": "the host", "beside": "collectives slowed by transfers of keys and values",
}  # fmt: skip


def _mean(found: Serving, of: Callable[[ServedRequests], float]) -> float:
    return float(np.mean([of(run) for run in found.runs]))


def _seconds(run: ServedRequests) -> float:
    return float(run.last.max() - run.arrival.min()) / 1e9


def _interval(found: Serving, of: Callable[[ServedRequests], float]) -> list[float] | None:
    """Return between what nine of ten seeds lie; None for one seed."""
    if len(found.runs) < 2:
        return None
    low, high = np.percentile([of(run) for run in found.runs], _LEVELS)
    return [float(low), float(high)]


def _output_rate(run: ServedRequests) -> float:
    return float(run.output.sum()) / _seconds(run)


def _goodput(found: Serving) -> float | None:
    setup = found.setup
    if not (setup.ttft_ms or setup.tpot_ms or setup.e2e_ms):
        return None
    return _mean(found, lambda run: float(within_limits(run, setup).sum()) / _seconds(run))


def _cost(found: Serving) -> float | None:
    """Return the price of a million generated tokens."""
    if not found.basis.price:
        return None
    return found.basis.price / 3600 / _mean(found, _output_rate) * 1e6


def _latencies(found: Serving) -> Iterator[dict[str, Any]]:
    values = [measures(run) for run in found.runs]
    for name in METRICS:
        columns: list[Floats] = [one[name][~np.isnan(one[name])] for one in values]
        if not all(column.size for column in columns):
            continue
        row: dict[str, Any] = {"metric": name, "title": _TITLES[name]}
        row["mean_ns"] = round(float(np.mean([column.mean() for column in columns])))
        for level in _PERCENTILES:
            of_runs = [float(np.percentile(column, level)) for column in columns]
            row[f"p{level}_ns"] = round(float(np.mean(of_runs)))
            between = np.percentile(of_runs, _LEVELS)
            row[f"p{level}_between_ns"] = (
                None if len(of_runs) < 2 else [round(float(one)) for one in between]
            )
        limit = getattr(found.setup, f"{name}_ms")
        row["limit_ns"] = round(limit * 1e6) if limit else None
        yield row


def _spent(found: Serving) -> Iterator[dict[str, Any]]:
    """Give the time of each part; measured layers do not tell what bounds them."""
    sums = {
        name: sum(int(run.instances[name].sum()) for run in found.runs)
        for name in ("dense", *_SPENT) if name != "compute"
    }  # fmt: skip
    # parts of steps are whole ns, of which the sum may be some more than the whole
    sums["compute"] = max(0, sums["dense"] - sums["memory"] - sums["network"])
    titles = _SPENT
    if found.basis.instance.times.bound is None:
        titles = {"dense": "weights and all that goes by tokens"} | {
            name: title for name, title in _SPENT.items()
            if name not in ("memory", "compute", "network")
        }  # fmt: skip
    for name, title in titles.items():
        yield {"part": name, "title": title, "time_ns": sums[name]}


def _bound(found: Serving) -> Iterator[dict[str, Any]]:
    for name, title in _WHY.items():
        if name == "prompts" and not found.setup.wait_steps:
            continue
        yield {"why": name, "title": title, "time_ns": sum(run.bound[name] for run in found.runs)}


def _memories(found: Serving) -> Iterator[dict[str, Any]]:
    basis, setup = found.basis, found.setup
    reads, whole = setup.reading_groups, slice(None)
    of_devices = [("device", basis.instance, whole, setup.attention_dp)]
    if basis.reading is not basis.instance:
        groups = setup.of_prefill.attention_dp
        of_devices = [
            ("device, decode", basis.instance, slice(reads, None), setup.attention_dp),
            ("device, prefill", basis.reading, slice(reads), groups),
        ]
    for name, kind, those, groups in of_devices:
        most = max(
            int(run.instances["most_blocks"][those].reshape(-1, groups).sum(axis=1).max())
            for run in found.runs
        )
        blocks = kind.blocks * groups
        yield {
            "name": name, "bytes": blocks * kind.block_bytes,
            "tokens": blocks * setup.block, "most_tokens": most * setup.block,
            "hit_tokens": sum(
                int(run.instances["hit_tokens"][those].sum()) for run in found.runs
            ),
            "read_bytes": None, "written_bytes": None, "busy_share": None,
        }  # fmt: skip
    block_bytes = basis.instance.block_bytes
    for row, tier in enumerate(basis.tiers):
        moved = [run.tiers[row] for run in found.runs]
        took = sum(_seconds(run) for run in found.runs) * 1e9
        channels = tier.memories(setup.all_groups)
        yield {
            "name": tier.name, "bytes": tier.blocks * block_bytes,
            "tokens": tier.blocks * setup.block, "most_tokens": None,
            "hit_tokens": sum(one.read for one in moved) * setup.block,
            "read_bytes": sum(one.read for one in moved) * block_bytes,
            "written_bytes": sum(one.written for one in moved) * block_bytes,
            "busy_share": sum(one.busy for one in moved) / took / channels,
        }  # fmt: skip


def _tokens(name: str) -> Callable[[Serving], int]:
    return lambda found: sum(int(run.instances[name].sum()) for run in found.runs)


def _headline(data: dict[str, Any]) -> str:
    rate = format_number(data["output_tokens_per_second"])
    requests = format_number(data["requests_per_second"])
    return f"{data['model']} on {data['system']}: {rate} generated tokens/s, {requests} requests/s"


def _more(data: dict[str, Any]) -> Iterator[str]:
    between = data["output_tokens_per_second_between"]
    if between:
        low, high = (format_number(one) for one in between)
        yield f"nine of ten of {data['seeds']} seeds: {low} to {high} generated tokens/s"
    if data["goodput_per_second"] is not None:
        share = data["goodput_per_second"] / data["requests_per_second"]
        yield (
            f"within the limits: {format_number(data['goodput_per_second'])} requests/s "
            f"({100 * share:.1f} %)"
        )
    if data["price_per_million_tokens"] is not None:
        price = format_number(data["price_per_million_tokens"])
        yield f"a million generated tokens cost {price} {data['currency']}".rstrip()
    yield (
        f"{format_counted(data['steps'], 'step')}, "
        f"{format_counted(data['preemptions'], 'preemption')}"
    )
    yield f"what bounds it: {data['bound_by']}"


def _bound_by(found: Serving) -> str:
    """Say what most of the time of steps goes to, and why no more requests were in them."""
    why = max(_bound(found), key=lambda row: row["time_ns"])
    part = max(_spent(found), key=lambda row: row["time_ns"])
    return f"{why['title']}; steps go to {part['title']}"


def _recorded(found: Serving) -> Iterator[dict[str, Any]]:
    for step in found.basis.instance.recorded:
        yield {
            "kind": step.kind, "tokens": step.tokens, "requests": step.chunks + step.decodes,
            "before": step.before if step.before >= 0 else None, "measured_ns": step.measured,
            "priced_ns": step.priced, "ratio": step.measured / step.priced,
        }  # fmt: skip


SERVING = Result(
    kind="serving", title="Serving", order=87,
    needs="output_tokens_per_second",  # what a recording says of its steps has the same key
    facts=(
        Column("model", get=lambda found: found.model.name),
        Column("system", get=lambda found: found.system.name),
        Column("requests", get=lambda found: int(found.runs[0].arrival.size)),
        Column("seeds", get=lambda found: len(found.runs)),
        Column("devices", get=lambda found: found.setup.devices),
        Column("seconds", get=lambda found: _mean(found, _seconds)),
        Column("requests_per_second",
               get=lambda found: _mean(found, lambda run: run.arrival.size / _seconds(run))),
        Column("output_tokens_per_second", get=lambda found: _mean(found, _output_rate)),
        Column("output_tokens_per_second_between",
               get=lambda found: _interval(found, _output_rate)),
        Column("tokens_per_second", get=lambda found: _mean(
            found, lambda run: float((run.prompt + run.output).sum()) / _seconds(run)
        )),
        Column("goodput_per_second", get=_goodput),
        Column("price_per_hour", get=lambda found: found.basis.price or None),
        Column("price_per_million_tokens", get=_cost),
        Column("currency", get=lambda found: found.system.currency),
        Column("steps", get=_tokens("steps")),
        Column("preemptions", get=_tokens("put_out")),
        Column("busy_ns", get=_tokens("busy")),
        Column("computed_tokens", get=_tokens("tokens")),
        Column("hit_tokens", get=_tokens("hit_tokens")),
        Column("loaded_tokens", get=_tokens("loaded_tokens")),
        Column("lost_tokens", get=_tokens("lost_tokens")),
        Column("bound_by", get=_bound_by),
    ),
    headline=_headline,
    parts=(
        Lines(_more),
        Rows("latencies", "latency", _latencies, (
            Column("metric"),
            Column("title", "of a request", NAME),
            Column("mean_ns", "mean", NS),
            *(
                column for level in _PERCENTILES for column in (
                    Column(f"p{level}_ns", f"P{level}", NS),
                    Column(f"p{level}_between_ns", about="between what nine of ten seeds lie"),
                )
            ),
            Column("p99_between_ns", "P99 of nine of ten seeds", _BETWEEN,
                   shown=lambda row: row["p99_between_ns"]),
            Column("limit_ns", "limit", _OPTIONAL_NS),
        )),
        Rows("spent", "what steps go to", _spent, (
            Column("part"), Column("title", "part", NAME), Column("time_ns", "time", NS),
            Column("time_ns", "share", share_of("busy_ns"), shown=lambda row: row["time_ns"]),
        )),
        Rows("bound", "why no more requests were in steps", _bound, (
            Column("why"), Column("title", "why", NAME), Column("time_ns", "time of steps", NS),
            Column("time_ns", "share", share_of("busy_ns"), shown=lambda row: row["time_ns"]),
        )),
        Rows("memories", "keys and values: room of an instance, and what was found", _memories, (
            Column("name", "memory", NAME),
            Column("bytes", "room", _BYTES),
            Column("tokens", "tokens", COUNT),
            Column("most_tokens", "most used", _COUNT),
            Column("hit_tokens", "tokens found", COUNT),
            Column("read_bytes", "read", _BYTES),
            Column("written_bytes", "written", _BYTES),
            Column("busy_share", "busy", _SHARE),
        )),
        Rows("recorded", "steps of the recording: work of the device, and the price of the same",
             _recorded, (
            Column("kind", "step", NAME),
            Column("tokens", "tokens", COUNT),
            Column("requests", "requests", COUNT),
            Column("before", "tokens before", _COUNT, "each that generates; none if not recorded"),
            Column("measured_ns", "measured", NS),
            Column("priced_ns", "priced", NS),
            Column("ratio", "times as long", number(format_number)),
        ), top=20),
    ),
)  # fmt: skip
