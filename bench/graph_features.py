"""Features of the zoo's networks: the table in the package, and how long reading takes.

::

    python bench/graph_features.py --write src/cotenant/data/graph_features.csv
    python bench/graph_features.py --time
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from cotenant.profiles.graph.features import features_of
from cotenant.profiles.graph.ir import Graph, Options
from cotenant.profiles.graph.liveness import reserved_bytes
from cotenant.profiles.graph.torchreader import read_builder
from cotenant.profiles.zoo.recipes import RECIPES, Recipe, builder_of, find_recipe

TIMED = ("ResNet-18@ImageNet", "ResNet-50@ImageNet", "resnet152", "BERT@SQuAD", "GPT2-medium@WikiText")


def _graph(recipe: Recipe, batch: int, precision: str) -> Graph:
    options = Options(batch=batch, precision=precision, optimiser=recipe.optimiser)  # type: ignore[arg-type]
    return read_builder(builder_of(recipe), options, name=recipe.name)


def _numbers(graph: Graph) -> dict[str, float]:
    row = features_of(graph).row()
    del row["batch"], row["checkpointing"]
    row["reserved_bytes"] = reserved_bytes(graph)
    return row


def rows() -> Iterator[dict[str, object]]:
    """One row a recipe, batch size and precision; recipes that share a network are read once."""
    known: dict[tuple[str, str, int, str], dict[str, float]] = {}
    for recipe in RECIPES.values():
        for batch in sorted({*recipe.batches, recipe.usual_batch}):
            for precision in ("fp32", "amp"):
                key = (recipe.maker, recipe.optimiser, batch, precision)
                if key not in known:
                    known[key] = _numbers(_graph(recipe, batch, precision))
                    print(recipe.name, batch, precision, file=sys.stderr)
                yield {
                    "model": recipe.model,
                    "dataset": recipe.dataset,
                    "family": recipe.family,
                    "batch": batch,
                    "usual": int(batch == recipe.usual_batch),
                    "precision": precision,
                    "optimiser": recipe.optimiser,
                    "assumed": recipe.assumed,
                } | {name: f"{value:.6g}" if value % 1 else int(value) for name, value in known[key].items()}


def write(path: Path) -> None:
    """Write the table; only when all of it is there."""
    found = list(rows())
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, found[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)


def timed() -> None:
    """Print how long reading takes once torch is imported and has run a first small graph."""
    _graph(find_recipe("VAE@MNIST"), 2, "fp32")
    print("| network | operators | CPU s | wall s |\n| --- | ---: | ---: | ---: |")
    for name in TIMED:
        cpu, wall = time.process_time(), time.perf_counter()
        graph = _graph(find_recipe(name), 2, "fp32")
        features_of(graph)
        spent = time.process_time() - cpu, time.perf_counter() - wall
        print(f"| {name} | {len(graph.ops):,} | {spent[0]:.1f} | {spent[1]:.1f} |", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", type=Path, metavar="CSV")
    parser.add_argument("--time", action="store_true")
    asked = parser.parse_args()
    if asked.write:
        write(asked.write)
    if asked.time:
        timed()


if __name__ == "__main__":
    main()
