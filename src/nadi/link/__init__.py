"""From the host and device trace of a rank, or the latter alone, to one trace; ranks to a job."""

from nadi.link.join_host_device import link_device, link_pair
from nadi.link.join_ranks import COMMUNICATION, as_in_job, link_job

__all__ = ["COMMUNICATION", "as_in_job", "link_device", "link_job", "link_pair"]
