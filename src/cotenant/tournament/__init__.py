"""The tournament: every policy on many workloads, loads and conditions, ranked with intervals."""
