"""What ``nadi.models`` gives; each name is loaded when it is first used."""

from .given_values import Tensor as Tensor
from .job_builder import JobBuilder as JobBuilder
from .job_files import JobFiles as JobFiles, write_job as write_job
from .llm.generated_jobs import (
    JobStatistics as JobStatistics,
    llm_job as llm_job,
    llm_statistics as llm_statistics,
)
from .llm.language_model import (
    LanguageModel as LanguageModel,
    load_language_model as load_language_model,
    shipped_language_models as shipped_language_models,
)
from .llm.parallel_plan import ParallelPlan as ParallelPlan
from .networks.network_file import NeuralNetwork as NeuralNetwork
from .networks.network_jobs import (
    NetworkStatistics as NetworkStatistics,
    network_job as network_job,
    network_statistics as network_statistics,
)
from .networks.network_plan import (
    NetworkPlan as NetworkPlan,
    load_network as load_network,
    shipped_networks as shipped_networks,
)
from .rank_builder import Lane as Lane, RankBuilder as RankBuilder
from .rank_program import BuiltNode as BuiltNode, Group as Group
from .standard_cases import cases as cases
