"""By which rules a job is simulated: Nadi's own, or what ASTRA-sim would do."""
