"""Options, progress and workers that commands share."""
