"""From the host and device trace of a rank, or the latter alone, to one trace; ranks to a job."""

from nadi.link.job import COMMUNICATION, as_in_job, link_job
from nadi.link.merge import link_device, link_pair

__all__ = ["COMMUNICATION", "as_in_job", "link_device", "link_job", "link_pair"]
