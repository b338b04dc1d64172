"""What ``nadi.simulation`` gives; each name is loaded when it is first used."""

from .accounts.collective_accounts import (
    collective_times as collective_times,
    sum_by_group as sum_by_group,
    sum_by_type as sum_by_type,
)
from .accounts.link_accounts import link_table as link_table, link_use as link_use
from .accounts.memory_accounts import (
    live_memory as live_memory,
    tier_traffic as tier_traffic,
    tier_use as tier_use,
    tier_waits as tier_waits,
)
from .accounts.simulation_as_recording import (
    simulated_graph as simulated_graph,
    simulated_job as simulated_job,
    simulated_path as simulated_path,
)
from .accounts.simulation_results import (
    SimulationResults as SimulationResults,
    results_of as results_of,
)
from .accounts.times import (
    compute_times as compute_times,
    contended_times as contended_times,
    exposed_times as exposed_times,
    job_times as job_times,
    rank_times as rank_times,
    steady_step as steady_step,
)
from .alone.collective import (
    CollectiveEstimate as CollectiveEstimate,
    collective_time as collective_time,
    estimate_collectives as estimate_collectives,
    message_time as message_time,
    with_tables as with_tables,
)
from .engine_driver import simulate_job as simulate_job
from .feeder.feeder import ETFeeder as ETFeeder
from .feeder.feeder_node import (
    ETFeederNode as ETFeederNode,
    NodeBatch as NodeBatch,
    NodeType as NodeType,
)
from .flows.flow_state import Routes as Routes, rate_units as rate_units
from .flows.flow_times import (
    Transfers as Transfers,
    flow_times as flow_times,
    transfer_times as transfer_times,
)
from .flows.network_graph import NetworkGraph as NetworkGraph, network_graph as network_graph
from .loggp.loggp import LogGP as LogGP, LogGPTimes as LogGPTimes, loggp_times as loggp_times
from .loggp.message_jobs import (
    messages_of_job as messages_of_job,
    read_messages as read_messages,
    simulate_messages as simulate_messages,
)
from .on_system import OnSystem as OnSystem, Prices as Prices, prices_on as prices_on
from .runs.changes import (
    parse_simulated_change as parse_simulated_change,
    with_changes as with_changes,
)
from .runs.saved import SavedSimulation as SavedSimulation, read_simulation as read_simulation
from .runs.simulate import (
    bound_answer as bound_answer,
    simulate as simulate,
    simulate_together as simulate_together,
)
from .runs.simulation_report import write_simulation as write_simulation
from .runs.timeline import (
    write_issue_lines as write_issue_lines,
    write_simulated_timeline as write_simulated_timeline,
    write_simulation_page as write_simulation_page,
)
from .simulation import Simulation as Simulation, TimeBound as TimeBound
from .work.recorded_work import PlacedJob as PlacedJob
from .workload.astra_sim_files import (
    SimulatorFiles as SimulatorFiles,
    write_for_astra_sim as write_for_astra_sim,
)
