"""Runs: from a description to folders of logs, tables and a manifest."""
