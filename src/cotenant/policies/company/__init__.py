"""Beside whom: what a forecast says of sets of jobs, and which partners a waiting job suits."""
