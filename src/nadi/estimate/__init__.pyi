"""What ``nadi.estimate`` gives; each name is loaded when it is first used."""

from .estimate_rules import CALCULON as CALCULON, EstimateRules as EstimateRules
from .estimated_model import ModelDescription as ModelDescription
from .evaluation import Evaluated as Evaluated, evaluate as evaluate
from .execution import Execution as Execution, Executions as Executions, columns_of as columns_of
from .machine_description import MachineDescription as MachineDescription
from .search_layouts import SearchSpace as SearchSpace, search_space as search_space
from .search_results import RankedExecution as RankedExecution, SearchResult as SearchResult
from .single_estimate import Estimate as Estimate, estimate as estimate
