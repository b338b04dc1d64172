"""What ``nadi.trace`` gives; each name is loaded when it is first used."""

from . import schema as schema
from .attributes import Attributes as Attributes
from .operations import (
    Operations as Operations,
    dtype_code as dtype_code,
    op_class_code as op_class_code,
)
from .trace import (
    Job as Job,
    Provenance as Provenance,
    Schedule as Schedule,
    Source as Source,
    Trace as Trace,
)
from .validate import validate_job as validate_job, validate_trace as validate_trace
