"""Measuring jobs alone and together on a real device: plan, run, steady state, tables."""
