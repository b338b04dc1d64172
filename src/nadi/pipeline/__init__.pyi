"""What ``nadi.pipeline`` gives; each name is loaded when it is first used."""

from .conversion import Conversion as Conversion, convert as convert
from .linking import LinkedFile as LinkedFile, Linking as Linking, link_files as link_files
from .recorded_jobs import ask as ask, reorder_job as reorder_job, run as run
from .result import Answers as Answers, Prediction as Prediction, Run as Run
from .simulated_jobs import simulate as simulate
from .system_fit import on_system as on_system
