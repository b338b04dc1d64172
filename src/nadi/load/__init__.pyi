"""What ``nadi.load`` gives; each name is loaded when it is first used."""

from .astra_sim_system import (
    load_astra_sim_system as load_astra_sim_system,
    read_comm_groups as read_comm_groups,
)
from .collective_tables import (
    read_measured_collectives as read_measured_collectives,
    read_nccl_log as read_nccl_log,
)
from .device_library import load_device as load_device, shipped_devices as shipped_devices
from .estimate_files import (
    read_execution as read_execution,
    read_machine as read_machine,
    read_model as read_model,
    read_plan_fields as read_plan_fields,
)
from .folded_files import read_folded as read_folded, write_folded as write_folded
from .goal_files import read_goal as read_goal, write_goal as write_goal
from .model_library import (
    load_language_model as load_language_model,
    shipped_language_models as shipped_language_models,
)
from .network_library import load_network as load_network, shipped_networks as shipped_networks
from .offload_machines import (
    load_offload_machine as load_offload_machine,
    offload_machine_text as offload_machine_text,
)
from .recordings import load_devices as load_devices, load_job as load_job
from .report_inputs import read_prediction as read_prediction
from .saved_predictions import SavedPrediction as SavedPrediction
from .saved_simulations import (
    SavedSimulation as SavedSimulation,
    read_simulation as read_simulation,
)
from .simulation_jobs import read_job as read_job, read_ranks as read_ranks
from .system_library import (
    load_system as load_system,
    read_system_file as read_system_file,
    shipped_systems as shipped_systems,
    shipped_text as shipped_text,
)
from .trace_model_files import (
    read_trace_model as read_trace_model,
    write_trace_model as write_trace_model,
)
