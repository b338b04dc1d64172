"""What ``nadi.systems`` gives; each name is loaded when it is first used."""

from .device import Device as Device, plain_device as plain_device
from .fabrics import (
    Dragonfly as Dragonfly,
    Fabric as Fabric,
    FullMesh as FullMesh,
    GivenRoute as GivenRoute,
    LinkChange as LinkChange,
    Torus as Torus,
    Tree as Tree,
)
from .importers.astra_sim import (
    AstraSimOptions as AstraSimOptions,
    astra_sim_system as astra_sim_system,
    load_astra_sim_system as load_astra_sim_system,
    read_comm_groups as read_comm_groups,
)
from .library import (
    load_device as load_device,
    load_system as load_system,
    read_inspector as read_inspector,
    read_measured_collectives as read_measured_collectives,
    read_nccl_log as read_nccl_log,
    read_system_file as read_system_file,
    shipped_devices as shipped_devices,
    shipped_systems as shipped_systems,
    shipped_text as shipped_text,
)
from .memory_changes import MemoryChange as MemoryChange, parse_memory_change as parse_memory_change
from .memory_tiers import (
    LoadedLatency as LoadedLatency,
    MemoryPath as MemoryPath,
    MemoryTier as MemoryTier,
    access_ns as access_ns,
    loaded_latency_ns as loaded_latency_ns,
    rate_alone as rate_alone,
    remote_tier as remote_tier,
    second_tier as second_tier,
)
from .nccl.nccl_cost_table import (
    ChannelGraph as ChannelGraph,
    NcclChoice as NcclChoice,
    NcclCommunicator as NcclCommunicator,
    NcclCost as NcclCost,
    nccl_choices as nccl_choices,
    nccl_costs as nccl_costs,
    nccl_times as nccl_times,
)
from .nccl.nccl_versions import NcclRules as NcclRules, nccl_rules as nccl_rules
from .prices.learned_prices import LearnedPrices as LearnedPrices, learn_prices as learn_prices
from .prices.price_list import SOURCES as SOURCES, PriceList as PriceList, price as price
from .prices.priced_traces import (
    PricedWork as PricedWork,
    price_job as price_job,
    price_trace as price_trace,
)
from .system import (
    Bus as Bus,
    Collectives as Collectives,
    Compute as Compute,
    Dimension as Dimension,
    Network as Network,
    System as System,
)
from .system_file import SystemFile as SystemFile
