"""Saved state of jobs as blocks: kept once, in tiers, with owners and readers.

The transferable part of a disaggregated database's memory pool (Cao et al., PolarDB Serverless,
SIGMOD 2021): a registry that knows where each block lies, who refers to it and which version is
valid; one writer, fenced by an epoch; many readers, told when what they read is superseded.
"""
