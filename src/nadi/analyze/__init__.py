"""Analyses of a job; each computes plain data, none plots."""
