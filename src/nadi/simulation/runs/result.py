"""What ``nadi simulate`` found: what bounds the job, ranks, collectives, links, memory tiers."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import polars as pl

from nadi.results.charts.charts import Chart, HeatMap
from nadi.results.declared import (
    ALL,
    BOTH,
    BYTES,
    COUNT,
    LABEL,
    NS,
    PAGE,
    PERCENT,
    PLAIN,
    TEXT,
    UNCUT,
    Charts,
    Column,
    Html,
    Lines,
    Result,
    Rows,
    Tiles,
    Unit,
    barred,
    decimals,
    name_or,
    share_of,
    text_of,
)
from nadi.results.page.figures import stacked_bar
from nadi.results.text import issue_lines, with_units
from nadi.simulation.accounts.link_accounts import IN_GROUP
from nadi.simulation.accounts.memory_accounts import are_of_device
from nadi.simulation.accounts.simulation_results import SimulationResults
from nadi.simulation.accounts.times import PARTITION, TIME_LABELS, WAITING
from nadi.trace.schema import (
    COLLECTIVE_TIMES,
    JOB_TIMES,
    LINK_USE,
    LIVE_MEMORY,
    RANK_TIMES,
    TIER_TRAFFIC,
    TIER_USE,
    TIER_WAITS,
)
from nadi.units import (
    format_bytes,
    format_count,
    format_counted,
    format_ns,
    format_percent,
    format_range,
)

_FIRST, _SLOWEST, _GROUPS, _SHOWN = 8, 4, 8, 8  # rows of text
_LINKS, _USERS = 6, 2
_RANGES = 4  # of ranks, shown
_LEAST = 0.01  # of the bytes
_TOLD = ("simulate.recorded-times", "astra.ranks")

# the classes of their colors
_COLORS = dict(zip(
    TIME_LABELS, ("computing", "transferring", "copying", "host_op", "launch", "waiting", "delay",
             "launch", "host_gap", "idle"), strict=True,
))  # fmt: skip
_Place = tuple[str | int, ...]
_Entries = list[tuple[_Place, dict[str, Any]]]


# data


def _described(results: SimulationResults) -> dict[str, Any]:
    """Compute the JSON output; tables are polars frames."""
    live = results.live_memory
    system = results.system
    return {
        "system": system.name,
        "ranks": results.cycles.size,
        "nodes": results.num_nodes,
        "makespan_ns": results.makespan,
        "finish_ns": results.cycles.tolist(),
        "compute_ns": results.compute.tolist(),
        "not_compute_ns": results.exposed.tolist(),
        "ignored_settings": list(system.ignored),
        "priced": results.priced and msgspec.to_builtins(results.priced),
        "bound": results.bound and msgspec.to_builtins(results.bound),
        "slowest_rank": slowest_rank(results.rank_times),
        "per_rank": with_units(results.rank_times, RANK_TIMES),
        "collectives_by_type": with_units(results.collective_types, COLLECTIVE_TIMES),
        "collectives_by_group": with_units(results.process_groups, COLLECTIVE_TIMES),
        "jobs": None if results.job_times is None else with_units(results.job_times, JOB_TIMES),
        "links": None if results.link_use is None else with_units(results.link_use, LINK_USE),
        "live_memory": None if live is None else with_units(live, LIVE_MEMORY),
        "memory_capacity_bytes": system.memory_capacity or None,
        "beyond_capacity": with_units(results.beyond_capacity, LIVE_MEMORY),
        **_tier_data(results),
        "issues": results.issues,
    }


def slowest_rank(times: pl.DataFrame) -> dict[str, int]:
    """Return the row of the rank that finishes last, of several the lowest; keys with units."""
    last = int(np.argmax(times["finish"].to_numpy()))
    return with_units(times[last], RANK_TIMES).row(0, named=True)


def _tier_data(results: SimulationResults) -> dict[str, Any]:
    """Compute the part of the JSON output about tiers; null if no node uses one."""
    traffic, use = results.tier_traffic, results.tier_use
    if traffic is None or use is None:
        return {"memory_tiers": None, "memory_tiers_over_time": None, "memory_waits": None}
    return {
        "memory_tiers": with_units(traffic, TIER_TRAFFIC),
        "memory_tiers_over_time": with_units(use, TIER_USE),
        "memory_waits": with_units(_waits(results), TIER_WAITS),
    }


def _waits(results: SimulationResults) -> pl.DataFrame:
    """Sum the waits of operations by name and tier, the longest first."""
    assert results.tier_waits is not None
    return (
        results.tier_waits.group_by("name", "tier", maintain_order=True)
        .agg(count=pl.len(), waiting=pl.col("waiting").sum())
        .sort("waiting", descending=True, maintain_order=True)
    )


def changes_data(compared: pl.DataFrame) -> pl.DataFrame:
    """Add units to the columns that say what changes would do."""
    return compared.rename({"makespan": "makespan_ns", "gain": "gain_ns"})


def _frame(rows: Any) -> pl.DataFrame:
    """Return rows of the data as a frame, which they are but on pages."""
    if isinstance(rows, pl.DataFrame):
        return rows
    return pl.DataFrame(rows or [], infer_schema_length=None)


# lines


def _headline(data: dict[str, Any]) -> str:
    on = f" on {data['system']}" if data["system"] else ""
    ranks, nodes = format_counted(data["ranks"], "rank"), format_counted(data["nodes"], "node")
    makespan = data["makespan_ns"]
    return f"{ranks}, {nodes}{on}: {format_ns(makespan)} ({format_count(makespan)} ns)"


def _first_lines(data: dict[str, Any]) -> Iterator[str]:
    if data["bound"]:
        yield _bound(data["bound"], data["makespan_ns"])
    slowest = data["slowest_rank"]
    yield time_of_rank(slowest)
    if data["priced"] and sum(data["priced"][key] for key in _PRICED):
        yield _priced(data["priced"])
    if data["ignored_settings"]:
        yield f"ignored settings: {', '.join(data['ignored_settings'])}"


def _bound(bound: dict[str, int], makespan: int) -> str:
    """Format between what times the answer of a folded job is."""
    if bound["low_ns"] == bound["high_ns"]:
        return "folded: alike ranks took the same times, so this is the time of the whole job"
    low, high = (100 * (end / max(makespan, 1) - 1) for end in (bound["low_ns"], bound["high_ns"]))
    interval = f"{format_ns(bound['low_ns'])} to {format_ns(bound['high_ns'])}"
    return f"folded: the whole job most likely takes {interval} ({low:+.2f} to {high:+.2f} %)"


_PRICED = ("exact", "interpolated", "curve", "roofline")


def _priced(priced: dict[str, Any]) -> str:
    """Format what was priced, by what, and the interval of the sum."""
    by_what = ("recorded operations of the same shape", "recorded operations of other shapes",
               f"curves of {priced['device']}", "a plain roofline")  # fmt: skip
    used = {what: priced[key] for what, key in zip(by_what, _PRICED, strict=True) if priced[key]}
    by = ", ".join(
        what if len(used) == 1 else f"{format_count(count)} by {what}"
        for what, count in used.items()
    )
    by = f"by {by}" if len(used) == 1 else by
    between = format_range(priced["low_ns"], priced["high_ns"])
    total = format_counted(sum(used.values()), "operation")
    return (
        f"priced {total} without a time {by}: {format_ns(priced['duration_ns'])} ({between}) in all"
    )


def time_of_rank(row: dict[str, int]) -> str:
    """Format the shares of the time of the rank that finishes last, largest first."""
    parts = sorted(((row[f"{name}_ns"], name) for name in PARTITION if row[f"{name}_ns"]),
                   reverse=True)  # fmt: skip
    told = (f"{TIME_LABELS[name]} {format_percent(time, row['finish_ns'])}" for time, name in parts)
    shares = ", ".join(told) or "no node takes any time"
    return f"rank {row['rank']} finishes last; its time: {shares}"


def _memory_lines(data: dict[str, Any]) -> Iterator[str]:
    """Yield the largest peak of each kind of device, and which ranks' tensors do not fit."""
    capacity = data["memory_capacity_bytes"]
    if data["live_memory"] is None:
        several = data["jobs"] is not None
        why = "of several jobs they are not counted" if several else "the traces record no tensors"
        yield f"live tensors: unknown ({why})"
        return
    live = _frame(data["live_memory"])
    if not live.height:
        return
    kind = live["device"].cast(pl.String).str.extract(r"^([^:]*)")
    largest = live.with_columns(kind=kind, counts=are_of_device(live)).sort(
        "peak_bytes", descending=True, maintain_order=True
    )
    for row in largest.unique("kind", keep="first", maintain_order=True).iter_rows(named=True):
        on = f" on {row['device']}" if row["device"] else ""
        of = f" of {format_bytes(capacity)}" if capacity and row["counts"] else ""
        yield (
            f"live tensors{on}: peak {format_bytes(row['peak_bytes'])}{of}, on rank {row['rank']} "
            f"at {format_ns(row['at_ns'])}"
        )
    if beyond := len({row["rank"] for row in _frame(data["beyond_capacity"]).to_dicts()}):
        yield (
            f"warning: live tensors of {format_counted(beyond, 'rank')} exceed the "
            f"{format_bytes(capacity)} memory of a rank's device"
        )


def told_issues(issues: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield a line per issue that bears on what a simulation means."""
    told = (one for one in issues if one["severity"] != "info" or one["code"] in _TOLD)
    return issue_lines(told)


def _issues(data: dict[str, Any]) -> Iterator[str]:
    issues = _frame(data.get("issues")).iter_rows(named=True)
    return told_issues(issues)


# rows


def _alike_ranks(data: dict[str, Any]) -> pl.DataFrame:
    """Return a row per range of ranks with equal times."""
    table = _frame(data["per_rank"])
    figures = table.drop("rank").to_numpy()
    differs = np.flatnonzero((figures[1:] != figures[:-1]).any(axis=1)) + 1
    first = np.append(np.zeros(min(table.height, 1), dtype=np.int64), differs)
    last = np.append(first[1:], table.height) - 1
    return table[first].with_columns(
        at=pl.Series(first), alike=pl.Series(last - first + 1),
        label=pl.when(pl.Series(first == last)).then(pl.Series(first).cast(pl.String))
        .otherwise(pl.format("{}-{}", pl.Series(first), pl.Series(last))),
    )  # fmt: skip


def _first_and_slowest(data: dict[str, Any]) -> pl.DataFrame:
    """Return the first rows, and those that finish last."""
    table = _alike_ranks(data).with_row_index("row")
    slowest = table.sort("finish_ns", "row", descending=[True, False]).head(_SLOWEST)
    return table.filter((pl.col("row") < _FIRST) | pl.col("row").is_in(slowest["row"].implode()))


def _entries(key: str, table: pl.DataFrame) -> _Entries:
    return [((key, row["at"]), row) for row in table.iter_rows(named=True)]


def _more_ranks(data: dict[str, Any]) -> Iterator[str]:
    if rest := data["ranks"] - int(_first_and_slowest(data)["alike"].sum()):
        yield f"and {format_count(rest)} more ranks; --json prints all"


def _rank_title(data: dict[str, Any]) -> str:
    few = _alike_ranks(data).height <= _FIRST
    return "ranks" if few else f"ranks (the first {_FIRST} rows and the slowest)"


def _rank_columns(data: dict[str, Any]) -> Iterator[Column]:
    """Yield the parts that some rank spends time on; on pages each wait, drawn, too."""
    yield Column("label", "rank", UNCUT)
    yield Column("", " ", _PARTS, on=PAGE)
    yield Column("finish_ns", "finish", NS)
    for name in PARTITION:
        on = PAGE if name in WAITING else BOTH
        yield Column(f"{name}_ns", TIME_LABELS[name], NS, on=on, is_rare=True)
        if name == WAITING[-1]:
            yield Column("", "wait time", NS, on=TEXT, is_rare=True,
                         shown=lambda row: sum(row[f"{name}_ns"] for name in WAITING))  # fmt: skip
    if (_frame(data["per_rank"])["communicating_ns"] > 0).any():
        yield Column("exposed_ns", "exposed comm", NS)
        yield Column("overlapped_ns", "overlapped comm", NS)


_PARTS = Unit(
    lambda _, __: "",
    lambda figures, _, row: stacked_bar(
        [(_COLORS[name], row[f"{name}_ns"]) for name in _COLORS], figures.get("makespan_ns")
    ), "",
)  # fmt: skip


def _types(data: dict[str, Any]) -> _Entries:
    table = _frame(data["collectives_by_type"])
    counts = Counter(table["type"]) if table.height else {}
    return [
        (("collectives_by_type", i), row | {
            "label": row["type"] + (f", {row['algorithm']}" if counts[row["type"]] > 1 else "")
        })
        for i, row in enumerate(table.iter_rows(named=True))
    ]  # fmt: skip


def _groups(data: dict[str, Any]) -> _Entries:
    """Return a row per set of groups that did the same."""
    table = _frame(data["collectives_by_group"])
    if not table.height:
        return []
    sums = ["members", "count", "bytes", "time_ns", "waiting_ns"]
    first = table.with_row_index("at").group_by(sums, maintain_order=True).agg(
        pl.col("at", "group").first(), pl.len().alias("alike")
    )  # fmt: skip
    if first.height == 1 and first["group"][0] == "":
        return []
    also = pl.format("{} and {} identical", "group", pl.col("alike") - 1)
    named = pl.when(pl.col("alike") > 1).then(also).otherwise("group")
    return _entries("collectives_by_group", first.with_columns(group=named))


_SUMS = (
    Column("members", "ranks", text_of(
        lambda members: members[0] if len(members) == 1 else f"{members[0]}-{members[-1]}"
    )),
    Column("count", "count", COUNT), Column("bytes", "bytes", BYTES),
    Column("time_ns", "time", NS), Column("waiting_ns", "wait time", NS),
)  # fmt: skip


def _links(data: dict[str, Any]) -> _Entries:
    """Return the busiest links, those with the same figures in one row."""
    found: dict[tuple[str, ...], tuple[int, dict[str, Any]]] = {}
    for at, row in enumerate(_frame(data["links"]).iter_rows(named=True)):
        share = format_percent(row["full_ns"], data["makespan_ns"]) if row["full_ns"] >= 0 else "-"
        cells = (format_bytes(row["bytes"]), PERCENT.show(row["utilization"], {}), share)
        kinds = (user.partition(IN_GROUP)[0] for user in row["users"][:_USERS])
        row |= {"full": share, "alike": 0}
        found.setdefault((*map(str, cells), *kinds), (at, row))[1]["alike"] += 1
    return [
        (("links", at), row | {"link": row["link"] + (
            f" and {format_count(row['alike'] - 1)} alike" if row["alike"] > 1 else ""
        )})
        for at, row in found.values()
    ]  # fmt: skip


def _more_links(data: dict[str, Any]) -> Iterator[str]:
    if rest := sum(row["alike"] for _, row in _links(data)[_LINKS:]):
        yield f"and {format_count(rest)} more links; --json prints all"


def _users(row: dict[str, Any]) -> str:
    """Format who used a link, and their shares of its bytes; groups of one type together."""
    groups: dict[str, list[str]] = {}
    carried: Counter[str] = Counter()
    for user, num_bytes in zip(row["users"], row["user_bytes_bytes"], strict=True):
        kind = user.partition(IN_GROUP)[0]
        groups.setdefault(kind, []).append(user)
        carried[kind] += num_bytes
    parts = []
    for kind, num_bytes in carried.most_common(_USERS):
        users = groups[kind]
        who = users[0] if len(users) == 1 else f"{kind} in {len(users)} groups"
        parts.append(f"{who} {format_percent(num_bytes, row['bytes'])}")
    rest = row["bytes"] - sum(num_bytes for _, num_bytes in carried.most_common(_USERS))
    return ", ".join(parts) + (", ..." if rest > _LEAST * row["bytes"] else "")


def _ranges(ranks: list[int]) -> str:
    """Format ranks in their order, those that follow each other as a range."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and parts[-1][-1] == rank - 1:
            parts[-1][1:] = [rank]
        else:
            parts.append([rank])
    text = ",".join("-".join(map(str, part)) for part in parts[:_RANGES])
    return text + (",..." if len(parts) > _RANGES else "")


def _tiers(data: dict[str, Any]) -> _Entries:
    """Return a row per tier, with the sums of its memories."""
    traffic = _frame(data["memory_tiers"])
    if not traffic.height:
        return []
    sums = traffic.group_by("tier", maintain_order=True).agg(
        pl.len().alias("memories"), pl.col("bytes_read", "bytes_written").sum(),
        pl.col("busy_ns").max(), pl.col("waiting_ns").sum(), pl.col("utilization").max(),
    )  # fmt: skip
    return [((), row) for row in sums.iter_rows(named=True)]


def _busiest(data: dict[str, Any]) -> Iterator[str]:
    if any(row["memories"] > 1 for _, row in _tiers(data)):
        yield "busy and utilization are those of the busiest memory of a tier"


def _tenths(data: dict[str, Any]) -> _Entries:
    """Return a row per tier, with the utilization of its busiest memory in each tenth."""
    parts = _frame(data["memory_tiers_over_time"])
    if not parts.height:
        return []
    known = parts.filter(pl.col("utilization").is_not_null())
    tiers = known.group_by("tier", "start_ns", maintain_order=True).agg(
        pl.col("utilization").max()
    )  # fmt: skip
    rows: dict[str, dict[str, Any]] = {}
    for tier, _, share in tiers.iter_rows():
        row = rows.setdefault(tier, {"tier": tier})
        row[str(len(row))] = share
    return [((), row) for row in rows.values()]


def _tenth_columns(data: dict[str, Any]) -> Iterator[Column]:
    yield Column("tier", "tier")
    for number in range(1, max(len(row) for _, row in _tenths(data))):
        yield Column(str(number), str(number), PERCENT)


def _use(data: dict[str, Any]) -> list[Chart]:
    """Draw the utilization of the busiest memory of each tier in each part of the time."""
    known = [row for row in data["memory_tiers_over_time"] or () if row["utilization"] is not None]
    if not known:
        return []
    tiers = list(dict.fromkeys(row["tier"] for row in known))
    starts = sorted({row["start_ns"] for row in known})
    values = np.full((len(tiers), len(starts)), np.nan)
    for row in known:
        at = tiers.index(row["tier"]), starts.index(row["start_ns"])
        values[at] = np.fmax(values[at], 100 * row["utilization"])
    return [HeatMap(
        "Utilization of memory tiers over time", "begin of each part of the time (ms)", "tier",
        tuple(f"{start / 1e6:.4g}" for start in starts), tuple(tiers), values, "percent",
        "the busiest memory of each tier",
    )]  # fmt: skip


def _legend(figures: Any) -> str:
    rows = figures.rows("per_rank")
    used = (name for name in _COLORS if any(row[f"{name}_ns"] for row in rows))
    keys = (f'<span><i class="key {_COLORS[name]}"></i>{TIME_LABELS[name]}</span>' for name in used)
    return f"<p class=legend>{''.join(keys)}</p>"


def _change_title(data: dict[str, Any]) -> str:
    of_memory = _frame(data["what_if"])["change"].str.starts_with("memory ").all()
    return "with other memory" if of_memory else "after changes"


SIMULATION = Result(
    kind="simulation", title="Simulation", order=1, needs="makespan_ns", facts=_described,
    headline=_headline,
    parts=(
        Tiles((
            Column("makespan_ns", "time of the job", NS), Column("ranks", "ranks", COUNT),
            Column("nodes", "operations", COUNT),
        )),
        Lines(_first_lines),
        Rows("jobs", "jobs", None, (
            Column("job", "job"),
            Column("ranks", "ranks", UNCUT, shown=lambda job: _ranges(job["ranks"])),
            Column("finish_ns", "finish", NS), Column("alone_ns", "alone", NS),
            Column("slowdown", "slowdown", decimals(3)),
        ), top=ALL),
        Rows("", _rank_title, None, _rank_columns, top=ALL, on=TEXT,
             made=lambda data: _entries("per_rank", _first_and_slowest(data))),
        Lines(_more_ranks, on=TEXT),
        Rows("", "time of each rank", None, _rank_columns, on=PAGE,
             made=lambda data: _entries("per_rank", _alike_ranks(data))),
        Html(_legend),
        Rows("", "collectives by type", None, (
            Column("label", "type"), *_SUMS,
            Column("bus_bandwidth_gb_per_s", "busbw GB/s", decimals(1)),
            Column("fraction", "efficiency", PERCENT, "of the bound"),
        ), made=_types, top=ALL),
        Rows("", "collectives by process group", None, (
            Column("group", "group", name_or("all ranks")), *_SUMS,
        ), made=_groups, top=_GROUPS),
        Rows("", "busiest links", None, (
            Column("link", "link", UNCUT), Column("bytes", "bytes", BYTES),
            Column("utilization", "utilization", PERCENT), Column("full", "full", LABEL),
            Column("users", "used by", UNCUT, shown=_users),
        ), made=lambda data: _links(data)[:_LINKS], top=ALL),
        Lines(_more_links),
        Rows("", "memory tiers", None, (
            Column("tier", "tier"), Column("memories", "memories", COUNT),
            Column("bytes_read", "read", BYTES), Column("bytes_written", "written", BYTES),
            Column("busy_ns", "busy", NS), Column("waiting_ns", "queueing", NS),
            Column("utilization", "utilization", PERCENT),
        ), made=_tiers, top=ALL, on=TEXT),
        Lines(_busiest, on=TEXT),
        Rows("memory_tiers", "what each memory served", None, (
            Column("tier", "tier"), Column("memory", "memory", PLAIN),
            Column("bytes_read", "read", BYTES), Column("bytes_written", "written", BYTES),
            Column("busy_ns", "busy", NS), Column("waiting_ns", "queueing", NS),
            Column("utilization", "utilization", barred(PERCENT)),
        ), on=PAGE),
        Rows("", "utilization of memory tiers in each tenth of the time", None, _tenth_columns,
             made=_tenths, top=ALL, on=TEXT),
        Charts(_use),
        Rows("memory_waits", "operations that wait for memory", None, (
            Column("name", "operation"), Column("tier", "tier"), Column("count", "count", COUNT),
            Column("waiting_ns", "wait time", NS),
        ), top=_SHOWN),
        Lines(_memory_lines),
        Rows("live_memory", "peak memory of live tensors", None, (
            Column("rank", "rank", PLAIN), Column("device", "device"),
            Column("peak_bytes", "peak", BYTES), Column("at_ns", "at", NS),
        ), on=PAGE),
        Lines(_issues),
        Rows("what_if", _change_title, None, (
            Column("change", "change", UNCUT), Column("makespan_ns", "time", NS),
            Column("gain_ns", "gain", NS), Column("gain_ns", "share", share_of("makespan_ns")),
        ), top=ALL),
    ),
)  # fmt: skip
