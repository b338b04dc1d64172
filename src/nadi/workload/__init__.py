"""Jobs for other programs: what a simulator of networks and devices takes in."""
