"""What ``nadi.pipeline`` gives; each name is loaded when it is first used."""

from .attacked_jobs import ATTACKED_MODELS as ATTACKED_MODELS, attack as attack
from .changed_jobs import ask as ask, reorder_job as reorder_job
from .checked_recordings import (
    CheckedRecordings as CheckedRecordings,
    check_recordings as check_recordings,
)
from .collective_estimates import (
    CollectiveEstimate as CollectiveEstimate,
    estimate_collectives as estimate_collectives,
    with_tables as with_tables,
)
from .compared_jobs import (
    Likeness as Likeness,
    Similarity as Similarity,
    compare as compare,
)
from .configuration_search import search as search
from .conversion import Conversion as Conversion, convert as convert
from .estimated_steps import (
    DescribedStep as DescribedStep,
    describe_search as describe_search,
    describe_step as describe_step,
    describe_sweep as describe_sweep,
)
from .extracted_jobs import Extraction as Extraction, extract as extract
from .folded_jobs import fold as fold, unfold as unfold
from .generated_jobs import llm_job as llm_job, llm_statistics as llm_statistics
from .generated_networks import (
    network_estimate as network_estimate,
    network_job as network_job,
    network_statistics as network_statistics,
)
from .graph_drawings import draw_graph as draw_graph
from .jobs_together import simulate_together as simulate_together
from .learned_jobs import learn as learn, synthesize as synthesize
from .linking import LinkedFile as LinkedFile, Linking as Linking, link_files as link_files
from .message_jobs import (
    read_messages as read_messages,
    simulate_messages as simulate_messages,
)
from .obfuscated_jobs import (
    obfuscate as obfuscate,
    reveal as reveal,
    write_obfuscated as write_obfuscated,
)
from .offloaded_inference import (
    OffloadAnswer as OffloadAnswer,
    OffloadQuestion as OffloadQuestion,
    offload_inference as offload_inference,
)
from .placed_steps import (
    MovedRole as MovedRole,
    PlacedStep as PlacedStep,
    PlainStep as PlainStep,
    TierBreakEven as TierBreakEven,
    plain_step as plain_step,
    with_bandwidth as with_bandwidth,
    with_room as with_room,
)
from .placement_estimates import (
    EstimatedRole as EstimatedRole,
    PlacementEstimates as PlacementEstimates,
)
from .placement_studies import (
    PlacementQuestion as PlacementQuestion,
    PlacementStudy as PlacementStudy,
    study_placement as study_placement,
)
from .predictions import on_system as on_system
from .recorded_analyses import analyze as analyze, analyze_all as analyze_all
from .recorded_diffs import diff as diff
from .recorded_jobs import run as run
from .recorded_predictions import (
    ComparedPrediction as ComparedPrediction,
    compare_prediction as compare_prediction,
)
from .replayed_jobs import ReplayedJob as ReplayedJob, replay as replay
from .run_results import Answers as Answers, Prediction as Prediction, Run as Run
from .scaled_down_jobs import (
    ScaledDown as ScaledDown,
    scale_down as scale_down,
    write_scaled as write_scaled,
)
from .scaled_up_jobs import ScaledStep as ScaledStep, scale as scale, scaled_step as scaled_step
from .schedule_files import draw_schedule as draw_schedule
from .second_tier_studies import (
    StudiedJob as StudiedJob,
    TierQuestion as TierQuestion,
    study_second_tiers as study_second_tiers,
)
from .simulated_changes import (
    parse_simulated_change as parse_simulated_change,
    with_changes as with_changes,
)
from .simulated_jobs import (
    bound_answer as bound_answer,
    simulate as simulate,
)
from .swept_searches import SweptSearch as SweptSearch, sweep_search as sweep_search
from .tier_sweeps import TierGrid as TierGrid, sweep_tiers as sweep_tiers
from .waiting_jobs import waits as waits
