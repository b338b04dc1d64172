"""Schedules drawn as timelines."""
