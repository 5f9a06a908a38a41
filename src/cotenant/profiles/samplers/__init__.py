"""Readings of devices: NVML, the DCGM exporter's text, nvidia-smi's text, and CPU core sets.

Every meter keeps its own name, for they mean different things; what a source does not give is
missing (None), never 0.
"""
