"""What a recorded program loads: its folder is put on its path, so nothing here imports Nadi."""
