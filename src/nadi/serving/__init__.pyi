"""What ``nadi.serving`` gives; each name is loaded when it is first used."""

from .engines import (
    CacheTier as CacheTier,
    EngineRules as EngineRules,
    InstanceKind as InstanceKind,
    ServedRequests as ServedRequests,
    TierTraffic as TierTraffic,
    serve_on_engines as serve_on_engines,
)
from .priced_steps import (
    InstanceBasis as InstanceBasis,
    InstanceLink as InstanceLink,
    ServerBasis as ServerBasis,
    server_basis as server_basis,
)
from .recorded_steps import RecordedStep as RecordedStep, read_recorded_steps as read_recorded_steps
from .requests import Requests as Requests, read_requests as read_requests
from .result import SERVING as SERVING
from .served import Serving as Serving, measures as measures, serve as serve
from .server_setup import ServerSetup as ServerSetup, setup_of as setup_of
from .step_times import StepTimes as StepTimes, profiled_times as profiled_times
from .sweep_results import SERVER_SEARCH as SERVER_SEARCH, SERVER_SWEEP as SERVER_SWEEP
from .sweeps import (
    ServedPoint as ServedPoint,
    ServerSearch as ServerSearch,
    ServerSweep as ServerSweep,
    TierWorth as TierWorth,
    search_servers as search_servers,
    sweep_servers as sweep_servers,
    tier_worth as tier_worth,
)
