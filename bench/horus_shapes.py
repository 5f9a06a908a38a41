"""How much hangs on Horus' cost functions, which the paper's text in hand does not give.

::

    python -m bench.horus_shapes [--jobs 1000] [--seeds 3] [--load 1.4]

Varies one thing at a time around the defaults (``steepness`` 3, equal weights), for both shapes, on the test-bed of
``cotenant reproduce horus`` (12 V100, 13 models), with the makespan variant: it follows the costs most closely. Prints means
over seeds as a Markdown table, for ``docs/policies/horus.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from cotenant.experiments.horus import testbed
from cotenant.experiments.simulate import metrics_of
from cotenant.experiments.utilisation import Gauge

__all__ = ["main", "settings"]

_KEYS = ("makespan_s", "jct_s_mean", "queued_s_mean", "corun_slowdown_mean")


def settings() -> Iterator[tuple[str, float, float, float]]:
    """Shape, steepness, memory weight, utilisation weight."""
    for shape in ("fill", "spread"):
        for steepness in (0.5, 1.0, 3.0, 10.0):
            yield shape, steepness, 0.5, 0.5
        for memory in (0.0, 0.25, 0.75, 1.0):
            yield shape, 3.0, memory, 1.0 - memory


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.horus_shapes", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--load", type=float, default=1.4)
    given = parser.parse_args(arguments)
    print(
        "| shape | steepness | w1 | w2 | utilisation | makespan s | mean completion s | mean wait s | mean slowdown |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for shape, steepness, memory, util in settings():
        spec = (
            f"horus:variant=makespan:shape={shape}:steepness={steepness}"
            f":memory_weight={memory}:utilisation_weight={util}"
        )
        sums = dict.fromkeys(_KEYS, 0.0)
        shown = 0.0
        for seed in range(given.seeds):
            gauge = Gauge("V100")
            found = metrics_of(testbed(seed, given.jobs, given.load), spec, seed, observers=[gauge]).summary
            shown += gauge.device_s / (found["gpus"] * found["window_s"])
            for key in _KEYS:
                sums[key] += found[key]
        m, j, q, c = (sums[key] / given.seeds for key in _KEYS)
        print(
            f"| {shape} | {steepness:g} | {memory:g} | {util:g} | {shown / given.seeds:.3f} "
            f"| {m:,.0f} | {j:,.0f} | {q:,.0f} | {c:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
