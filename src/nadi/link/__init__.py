"""From a host and a device trace of one rank to one trace, and from ranks to a job."""

from nadi.link.comm import link_job
from nadi.link.merge import link_pair

__all__ = ["link_job", "link_pair"]
