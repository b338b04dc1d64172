"""A memory tier in words: bandwidth, direction, sharing, and the schedule of what lives there."""

from collections.abc import Collection

from nadi.estimates.calculon.machine_description import MemoryColumns
from nadi.results.charts.charts import short_number
from nadi.systems.memory_tiers import UPDATE_SCHEDULE, MemoryTier
from nadi.units import format_ns


def tier_words(tier: MemoryTier | MemoryColumns) -> str:
    """Say what a GB/s of a tier is of, and in which directions."""
    if isinstance(tier, MemoryTier):
        read, write, latency = tier.read_bandwidth, tier.write_bandwidth, tier.latency
    else:
        read, write, latency = tier.GBps, tier.GBps_written or tier.GBps, 1e9 * tier.latency
    rate = f"{short_number(read)} GB/s"
    if write != read:
        rate = f"{rate} read and {short_number(write)} GB/s written"
    return f"{tier.name or 'tier 2'}: {rate}, {sharing_words(tier)}, {format_ns(round(latency))}"


def sharing_words(tier: MemoryTier | MemoryColumns) -> str:
    """Say whose a tier is, and in which directions it moves."""
    way = "both ways at once (full duplex)" if tier.duplex else "reads or writes (half duplex)"
    whose = "of each rank"
    if tier.shared_by != 1:
        whose = f"of {tier.shared_by or 'all'} ranks together"
    return f"{whose}, {way}"


def schedule_words(moved: Collection[str]) -> list[str]:
    """Say when what lives in a tier moves, if that is assumed."""
    return [UPDATE_SCHEDULE] if "optimizer" in moved else []
