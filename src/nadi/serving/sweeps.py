"""Servers beside each other: a field varied, and the cheapest that keeps the limits."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nadi.errors import NadiError, Parameter, UsageError, checked
from nadi.estimates.sweep_axes import UNITS_OF_FILES, read_values
from nadi.models.llm.language_model import load_language_model
from nadi.serving.result import SERVING
from nadi.serving.served import Serving, serve_setup, within_limits
from nadi.serving.server_setup import ServerSetup, setup_of
from nadi.systems.library import load_system

_TIER_FIELDS = ("capacity", "bandwidth", "sharing")  # of the last tier
_MOST_POINTS = 2000
_FEW = 0.99  # share of requests within the limits that is enough


class ServedPoint(NamedTuple):
    """A server of a sweep or a search.

    Attributes
    ----------
    values
        The fields that were varied.
    found
        How it served; None if it cannot.
    why
        Why it cannot, empty if it can.
    """

    values: dict[str, Any]
    found: Serving | None
    why: str

    @property
    def within(self) -> float:
        """Share of requests within the limits, the mean of all seeds."""
        found = self.found
        if found is None:
            return 0.0
        return float(np.mean([within_limits(run, found.setup).mean() for run in found.runs]))

    @property
    def devices(self) -> int:
        """How many it takes; 0 if it cannot serve."""
        return self.found.setup.devices if self.found else 0


class ServerSweep(NamedTuple):
    """Servers with each value of one field, or of two."""

    fields: tuple[str, ...]
    points: tuple[ServedPoint, ...]


class ServerSearch(NamedTuple):
    """Servers that were tried.

    Attributes
    ----------
    points
        All of them: of each way to spread an instance, the fewest instances that keep the limits,
        and those that were tried before.
    best
        The cheapest that keeps them; None if none does.
    without_tiers
        The cheapest without the tiers, if the setup has some.
    has_tiers
        Whether it has.
    """

    points: tuple[ServedPoint, ...]
    best: ServedPoint | None
    without_tiers: ServedPoint | None
    has_tiers: bool


@checked
def sweep_servers(
    model: str | Path, system: str | Path, axes: Sequence[str], **setup: Any
) -> ServerSweep:
    """Serve with each value of a field, or each pair of values of two.

    Parameters
    ----------
    axes
        Such as ``rate=1,2,4`` or ``replicas=1:8:x2``: fields of :class:`ServerSetup`, and
        ``capacity``, ``bandwidth`` and ``sharing`` of the last tier: how many neighboring
        instances have one in common.

    Raises
    ------
    UsageError
        If a field is unknown, has no such value, or changes nothing.
    """
    basis = setup_of(setup)
    found: dict[str, tuple[Any, ...]] = {}
    for axis in axes:
        name, _, text = axis.partition("=")
        found[name] = _values(name, text, basis)
    grows = {"replicas", "prefill_replicas"} & found.keys()
    if "sharing" in found and basis.instances == 1 and not grows:
        raise UsageError(
            Parameter("sweep", "sharing"), "one instance has its tiers alone",
            ["give more ", Parameter("replicas")],
        )  # fmt: skip
    if len(found) > 2 or np.prod([len(values) for values in found.values()]) > _MOST_POINTS:
        what = f"over two fields, or over {_MOST_POINTS:,} points"
        raise UsageError(Parameter("sweep"), what, "give fewer")
    points = tuple(
        _point(model, system, setup, dict(zip(found, values, strict=True)))
        for values in itertools.product(*found.values())
    )
    return ServerSweep(tuple(found), points)


def _values(name: str, text: str, basis: ServerSetup) -> tuple[Any, ...]:
    if name in _TIER_FIELDS:
        if not basis.tiers:
            raise UsageError(
                Parameter("sweep", name), "the setup has no tier",
                ["give one with ", Parameter("tiers")],
            )  # fmt: skip
        like: Any = 1 if name == "sharing" else 1.0
        return read_values(name, text, like, name, UNITS_OF_FILES)
    like = getattr(basis, name, None)
    if not isinstance(like, (bool, int, float, str)) or name.startswith("_"):
        known = ", ".join((*ServerSetup.__struct_fields__, *_TIER_FIELDS))
        raise UsageError(Parameter("sweep", name), "there is no such field", f"known: {known}")
    return read_values(name, text, like, name, {})


def _point(
    model: str | Path, system: str | Path, setup: Mapping[str, Any], values: dict[str, Any]
) -> ServedPoint:
    """Serve one setup; what cannot be is a point that says why."""
    changed = dict(setup) | {k: v for k, v in values.items() if k not in _TIER_FIELDS}
    tiers = tuple(changed.get("tiers", ()))
    if tiers and any(name in values for name in _TIER_FIELDS):
        name, _, stated = tiers[-1].partition("=")
        stated, _, sharing = stated.partition(":")
        capacity, _, rate = stated.partition("@")
        if "capacity" in values:
            capacity = f"{values['capacity']:.12g}GiB"
        if "bandwidth" in values:
            rate = f"{values['bandwidth']:.12g}GB/s"
        sharing = values.get("sharing", sharing)
        last = f"{name}={capacity}{'@' if rate else ''}{rate}{':' if sharing else ''}{sharing}"
        changed["tiers"] = (*tiers[:-1], last)
    try:
        return ServedPoint(values, serve_setup(model, system, setup_of(changed)), "")
    except NadiError as error:
        if isinstance(error, UsageError):
            return ServedPoint(values, None, error.what)
        raise


@checked
def search_servers(
    model: str | Path, system: str | Path, most_devices: int = 16, **setup: Any
) -> ServerSearch:
    """Find the cheapest server that keeps the limits for 99 % of the requests.

    For each tensor parallel degree, and with prompts read apart or not, replicas are added until
    the limits are kept or the devices are used up. Then instances that only read prompts get other
    degrees than the others, as long as that takes fewer devices than what was found before. With
    tiers, the same is searched without them.

    Raises
    ------
    UsageError
        If the setup has no limit.
    """
    basis = setup_of(setup)
    if not (basis.ttft_ms or basis.tpot_ms or basis.e2e_ms):
        raise UsageError(
            Parameter("search"), "without a limit the smallest server would do",
            ["give ", Parameter("ttft_ms"), " or another limit"],
        )  # fmt: skip
    points = list(_tried(model, system, setup, most_devices))
    without = None
    if basis.tiers:
        without = _cheapest(_tried(model, system, setup | {"tiers": ()}, most_devices))
    return ServerSearch(tuple(points), _cheapest(points), without, bool(basis.tiers))


def _cheapest(points: Iterator[ServedPoint] | Sequence[ServedPoint]) -> ServedPoint | None:
    kept = [one for one in points if one.within >= _FEW]
    return min(kept, key=_cost, default=None)


def _cost(point: ServedPoint) -> tuple[float, int]:
    price = point.found.basis.price if point.found else 0.0
    return price, point.devices


def _tried(
    model: str | Path, system: str | Path, setup: Mapping[str, Any], most_devices: int
) -> Iterator[ServedPoint]:
    """Try servers, of each kind those with fewer devices first."""
    heads = load_language_model(model).heads
    node = load_system(system).network.dimensions[0].size
    most = min(most_devices, node or most_devices)
    degrees = [tp for tp in (1 << k for k in range(20)) if tp <= most and heads % tp == 0]
    basis, cheapest = setup_of(dict(setup)), most_devices + 1
    alike = [(tp, apart * tp) for tp in degrees for apart in (False, True)]
    differ = [pair for pair in itertools.product(degrees, degrees) if pair[0] != pair[1]]
    for tp, prefill_tp in alike + differ:
        if (tp, prefill_tp) in differ:  # only what is cheaper than what is known
            most_devices = cheapest - 1
        ranks = basis.ranks // basis.tp * tp
        reads = basis.of_prefill.ranks // basis.of_prefill.tp * prefill_tp
        for splits in _splits(ranks, reads, most_devices):
            tried = [
                _point(model, system, setup, {
                    "tp": tp, "replicas": others, "prefill_replicas": prefills,
                } | ({"prefill_tp": prefill_tp} if (tp, prefill_tp) in differ else {}))
                for prefills, others in splits
            ]  # fmt: skip
            yield from tried
            kept = [one.devices for one in tried if one.within >= _FEW]
            cheapest = min([cheapest, *kept])
            if kept or all(one.why for one in tried):
                break


def _splits(ranks: int, reads: int, most_devices: int) -> Iterator[list[tuple[int, int]]]:
    """Give the numbers of instances that read prompts and of others, by the devices they take."""
    for devices in range(1, most_devices + 1):
        prefills = range(1, devices // reads + 1) if reads else (0,)
        found = [
            (many, (devices - many * reads) // ranks) for many in prefills
            if devices > many * reads and (devices - many * reads) % ranks == 0
        ]  # fmt: skip
        if found:
            yield found


def point_row(point: ServedPoint) -> dict[str, Any]:
    """Give a point's values and what it reached, None where it cannot serve."""
    data = SERVING.data(point.found) if point.found else {}
    latencies = {row["metric"]: row for row in data.get("latencies", ())}
    row: dict[str, Any] = {
        "values": point.values, "why": point.why, "devices": point.devices or None,
        "output_tokens_per_second": data.get("output_tokens_per_second"),
        "goodput_per_second": data.get("goodput_per_second"),
        "price_per_million_tokens": data.get("price_per_million_tokens"),
        "within": point.within if point.found else None, "bound_by": data.get("bound_by"),
    }  # fmt: skip
    for name in ("ttft", "tpot", "e2e"):
        for level in (50, 99):
            row[f"{name}_p{level}_ns"] = latencies.get(name, {}).get(f"p{level}_ns")
    return row


class TierWorth(NamedTuple):
    """From which price on tiers cost more than the devices that they save.

    Attributes
    ----------
    devices
        How many more it takes without the tiers: all tiers pay below the price of so many.
    capacity
        Bytes of all tiers of the server.
    price
        Of an hour of these devices, in the system's currency; 0 if it states no price.
    stated
        Of an hour of the tiers, 0 if unknown.
    """

    devices: int
    capacity: int
    price: float
    stated: float

    @property
    def pays(self) -> bool | None:
        """Whether the tiers cost less than the devices; None if a price is not known."""
        return self.stated < self.price if self.stated and self.price else None


def tier_worth(found: ServerSearch) -> TierWorth | None:
    """Compare the cheapest server with tiers with the cheapest without; None if one is missing."""
    if found.best is None or found.without_tiers is None:
        return None
    served, without = found.best.found, found.without_tiers
    assert served is not None
    basis, groups = served.basis, served.setup.all_groups
    blocks = sum(one.blocks * one.memories(groups) for one in basis.tiers)
    devices = without.devices - found.best.devices
    per_hour = served.system.price_per_hour
    return TierWorth(
        devices, blocks * basis.instance.block_bytes, devices * per_hour,
        basis.price - per_hour * found.best.devices,
    )  # fmt: skip
