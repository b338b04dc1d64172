"""What ``nadi.estimate`` gives; each name is loaded when it is first used."""

from .described_systems import (
    machine_of_system as machine_of_system,
    model_of_language_model as model_of_language_model,
)
from .estimate_rules import (
    CALCULON as CALCULON,
    DEFAULT as DEFAULT,
    EstimateRules as EstimateRules,
    rules_named as rules_named,
)
from .estimated_model import ModelDescription as ModelDescription
from .evaluation import Evaluated as Evaluated, evaluate as evaluate
from .execution import Execution as Execution, Executions as Executions, columns_of as columns_of
from .machine_description import MachineDescription as MachineDescription
from .network_estimate import (
    NetworkEstimate as NetworkEstimate,
    estimate_network as estimate_network,
)
from .plan_execution import execution_of_plan as execution_of_plan
from .search_layouts import SearchSpace as SearchSpace, search_space as search_space
from .search_results import RankedExecution as RankedExecution, SearchResult as SearchResult
from .second_tier_study import (
    BreakEven as BreakEven,
    StudiedExecution as StudiedExecution,
    TierStudy as TierStudy,
    study_second_tier as study_second_tier,
)
from .single_estimate import Estimate as Estimate, estimate as estimate
from .stated_files import Described as Described, StatedFiles as StatedFiles
from .sweep_axes import SweepAxis as SweepAxis, parse_axes as parse_axes
from .sweeps import Sweep as Sweep, described_at as described_at, sweep_estimates as sweep_estimates
