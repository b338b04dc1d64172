"""What ``nadi.placement`` gives; each name is loaded when it is first used."""

from .flexgen_costs import (
    Inference as Inference,
    OffloadMachine as OffloadMachine,
    inference_of_model as inference_of_model,
)
from .flexgen_policy import (
    FlexGenSearch as FlexGenSearch,
    OffloadPolicy as OffloadPolicy,
    best_policy as best_policy,
    place_block as place_block,
)
from .flexgen_programs import needed_bytes as needed_bytes
from .in_place_access import SlowedWork as SlowedWork, slowed_work as slowed_work
from .linear_programs import (
    LinearProgram as LinearProgram,
    Optimum as Optimum,
    solve_program as solve_program,
)
from .placed_tensors import (
    JobTensors as JobTensors,
    TraceTensors as TraceTensors,
    tensors_of_job as tensors_of_job,
)
from .placement_choice import (
    ByRoom as ByRoom,
    ByRules as ByRules,
    PlacementRule as PlacementRule,
    Placer as Placer,
    TierRoom as TierRoom,
    parse_rules as parse_rules,
    rooms_of as rooms_of,
)
from .placement_solver import BySolver as BySolver, SolvedPlacement as SolvedPlacement
from .staged_moves import Moves as Moves, Staging as Staging
from .tier_accounts import (
    LiveBytes as LiveBytes,
    TierAccounts as TierAccounts,
    TierUse as TierUse,
    accounts_of as accounts_of,
    live_bytes as live_bytes,
)
from .tiered_jobs import TieredJob as TieredJob, tiered_job as tiered_job
