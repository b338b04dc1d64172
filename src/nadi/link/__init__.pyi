"""The public names of ``nadi.link``; each is loaded when it is first used."""

from .dependencies.tensor_dependencies import tensor_deps as tensor_deps
from .join_host_device import link_device as link_device, link_pair as link_pair
from .join_ranks import link_job as link_job
