"""What ``nadi.recordings`` gives; each name is loaded when it is first used."""

from .dependencies.tensor_dependencies import tensor_deps as tensor_deps
from .folded.files import read_folded as read_folded, write_folded as write_folded
from .folded.folded_job import FoldedJob as FoldedJob
from .folded.folded_trace import (
    FoldedTrace as FoldedTrace,
    fold_trace as fold_trace,
    unfold_trace as unfold_trace,
)
from .folded.repeats import RankClasses as RankClasses, classes_of_ranks as classes_of_ranks
from .job_of_files import load_devices as load_devices, load_job as load_job
from .jobs import read_job as read_job, read_ranks as read_ranks
from .join_host_device import link_device as link_device, link_pair as link_pair
from .join_ranks import link_job as link_job
