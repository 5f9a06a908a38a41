"""Prediction of interference: how much jobs on one device slow each other down."""
