"""What ``nadi.simulator`` gives; each name is loaded when it is first used."""

from .communication_times import collective_time as collective_time, message_time as message_time
from .engine_driver import simulate_job as simulate_job
from .flows.flow_state import Routes as Routes, rate_units as rate_units
from .flows.flow_times import Transfers as Transfers, flow_times as flow_times
from .flows.network_graph import NetworkGraph as NetworkGraph, network_graph as network_graph
from .flows.transfer_times import transfer_times as transfer_times
from .loggp.job_messages import messages_of_job as messages_of_job
from .loggp.loggp_machine import LogGP as LogGP
from .loggp.loggp_times import LogGPTimes as LogGPTimes, loggp_times as loggp_times
from .machine.astra_sim_config import (
    AstraSimOptions as AstraSimOptions,
    astra_sim_system as astra_sim_system,
)
from .machine.device import Device as Device, plain_device as plain_device
from .machine.fabrics import (
    Dragonfly as Dragonfly,
    Fabric as Fabric,
    FullMesh as FullMesh,
    GivenRoute as GivenRoute,
    LinkChange as LinkChange,
    Torus as Torus,
    Tree as Tree,
)
from .machine.loaded_latency import LoadedLatency as LoadedLatency
from .machine.memory_changes import (
    MemoryChange as MemoryChange,
    parse_memory_change as parse_memory_change,
)
from .machine.memory_tiers import (
    MemoryPath as MemoryPath,
    MemoryTier as MemoryTier,
    access_ns as access_ns,
    loaded_latency_ns as loaded_latency_ns,
    rate_alone as rate_alone,
    remote_tier as remote_tier,
    second_tier as second_tier,
)
from .machine.system import (
    Bus as Bus,
    Collectives as Collectives,
    Compute as Compute,
    Dimension as Dimension,
    Network as Network,
    System as System,
)
from .machine.system_file import SystemFile as SystemFile
from .nccl.nccl_choice import (
    NcclChoice as NcclChoice,
    nccl_choices as nccl_choices,
    nccl_times as nccl_times,
)
from .nccl.nccl_communicator import (
    ChannelGraph as ChannelGraph,
    NcclCommunicator as NcclCommunicator,
)
from .nccl.nccl_cost_table import NcclCost as NcclCost, nccl_costs as nccl_costs
from .nccl.nccl_versions import NcclRules as NcclRules, nccl_rules as nccl_rules
from .priced_work import PricedWork as PricedWork
from .results.collective_accounts import (
    collective_times as collective_times,
    sum_by_group as sum_by_group,
    sum_by_type as sum_by_type,
)
from .results.contended_time import contended_times as contended_times
from .results.job_accounts import job_times as job_times
from .results.link_accounts import link_table as link_table
from .results.link_use import link_use as link_use
from .results.memory_accounts import live_memory as live_memory
from .results.rank_accounts import (
    compute_times as compute_times,
    exposed_times as exposed_times,
    rank_times as rank_times,
)
from .results.simulation_as_recording import (
    simulated_graph as simulated_graph,
    simulated_job as simulated_job,
    simulated_path as simulated_path,
)
from .results.simulation_results import (
    SimulationResults as SimulationResults,
    results_of as results_of,
)
from .results.tier_traffic import (
    tier_traffic as tier_traffic,
    tier_use as tier_use,
    tier_waits as tier_waits,
)
from .simulation import Simulation as Simulation
from .time_bound import TimeBound as TimeBound
from .work.placed_jobs import PlacedJob as PlacedJob
