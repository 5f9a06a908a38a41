"""Sizes of elastic jobs: what more devices would gain, and how they are given back."""
