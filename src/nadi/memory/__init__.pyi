"""What ``nadi.memory`` gives; each name is loaded when it is first used."""

from .in_place_access import SlowedWork as SlowedWork, slowed_work as slowed_work
from .linear_programs import (
    LinearProgram as LinearProgram,
    Optimum as Optimum,
    solve_program as solve_program,
)
from .offloading.flexgen_costs import (
    Inference as Inference,
    OffloadMachine as OffloadMachine,
    inference_of_model as inference_of_model,
)
from .offloading.flexgen_policy import (
    FlexGenSearch as FlexGenSearch,
    OffloadPolicy as OffloadPolicy,
    best_policy as best_policy,
    needed_bytes as needed_bytes,
    place_block as place_block,
)
from .offloading.offloaded_inference import (
    OffloadAnswer as OffloadAnswer,
    OffloadQuestion as OffloadQuestion,
    load_offload_machine as load_offload_machine,
    offload_inference as offload_inference,
    offload_machine_text as offload_machine_text,
)
from .placed_tensors import (
    JobTensors as JobTensors,
    TraceTensors as TraceTensors,
    tensors_of_job as tensors_of_job,
)
from .placement.placed_steps import (
    MovedRole as MovedRole,
    PlacedStep as PlacedStep,
    PlainStep as PlainStep,
    TierBreakEven as TierBreakEven,
    plain_step as plain_step,
    with_bandwidth as with_bandwidth,
    with_room as with_room,
)
from .placement.study import (
    EstimatedRole as EstimatedRole,
    PlacementEstimates as PlacementEstimates,
    PlacementQuestion as PlacementQuestion,
    PlacementStudy as PlacementStudy,
    TierGrid as TierGrid,
    study_placement as study_placement,
    sweep_tiers as sweep_tiers,
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
    TieredJob as TieredJob,
    TierUse as TierUse,
    accounts_of as accounts_of,
    live_bytes as live_bytes,
    tiered_job as tiered_job,
)
from .tiers.study import (
    BreakEven as BreakEven,
    StudiedExecution as StudiedExecution,
    StudiedJob as StudiedJob,
    TierQuestion as TierQuestion,
    TierStudy as TierStudy,
    study_second_tier as study_second_tier,
    study_second_tiers as study_second_tiers,
)
