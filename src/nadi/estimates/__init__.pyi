"""What ``nadi.estimates`` gives; each name is loaded when it is first used."""

from .calculon.machine_description import MachineDescription as MachineDescription
from .calculon.rules import (
    CALCULON as CALCULON,
    DEFAULT as DEFAULT,
    EstimateRules as EstimateRules,
    rules_named as rules_named,
)
from .calibration import Calibration as Calibration, read_calibration as read_calibration
from .described_systems import (
    machine_of_system as machine_of_system,
    model_of_language_model as model_of_language_model,
)
from .estimated_model import ModelDescription as ModelDescription
from .evaluation import Evaluated as Evaluated, evaluate as evaluate
from .execution import Execution as Execution, Executions as Executions, columns_of as columns_of
from .network_steps import (
    NetworkEstimate as NetworkEstimate,
    estimate_network as estimate_network,
    network_estimate as network_estimate,
)
from .plan_execution import execution_of_plan as execution_of_plan
from .price_bounds import PriceBounds as PriceBounds
from .search_layouts import SearchSpace as SearchSpace, search_space as search_space
from .search_results import RankedExecution as RankedExecution, SearchResult as SearchResult
from .searches.search import (
    SweptSearch as SweptSearch,
    search as search,
    sweep_search as sweep_search,
)
from .single.estimate import (
    DescribedStep as DescribedStep,
    describe_search as describe_search,
    describe_step as describe_step,
    describe_sweep as describe_sweep,
)
from .single_estimate import Estimate as Estimate, estimate as estimate
from .stated_files import (
    Described as Described,
    StatedFiles as StatedFiles,
    read_execution as read_execution,
    read_machine as read_machine,
    read_model as read_model,
    read_plan_fields as read_plan_fields,
)
from .sweep_axes import SweepAxis as SweepAxis, parse_axes as parse_axes
from .sweeps import Sweep as Sweep, described_at as described_at, sweep_estimates as sweep_estimates
