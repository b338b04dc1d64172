"""What ``nadi.generate`` gives; each name is loaded when it is first used."""

from .given_values import Tensor as Tensor
from .job_builder import JobBuilder as JobBuilder
from .job_files import JobFiles as JobFiles, write_job as write_job
from .llm.job_statistics import JobStatistics as JobStatistics
from .llm.model_description import LanguageModel as LanguageModel
from .llm.parallel_plan import ParallelPlan as ParallelPlan
from .networks.network_description import NeuralNetwork as NeuralNetwork
from .networks.network_plan import NetworkPlan as NetworkPlan
from .networks.network_statistics import NetworkStatistics as NetworkStatistics
from .rank_builder import Lane as Lane, RankBuilder as RankBuilder
from .rank_program import BuiltNode as BuiltNode, Group as Group
from .standard_cases import cases as cases
