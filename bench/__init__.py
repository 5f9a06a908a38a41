"""Speed and memory of the simulator; see ``docs/performance.md``.

Run from the root of the repository: ``python -m bench`` for the quick grid, ``python -m
bench.speed --help`` and so on for the parts.
"""
