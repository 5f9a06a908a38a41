"""Error of every single member of the interference zoo on groups that it has not seen.

``python -m bench.interference_members [--zoo all] [FOLDER]``

Mean absolute error of re-based speeds: pairs of architectures left out, and architectures left out
on their device type, in every campaign. These are the groups by which the predictor chooses.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from bench.interference_error import TARGETS, near
from cotenant.predictors.interference.cases import ELSEWHERE, KNOWN, left_out
from cotenant.predictors.interference.effects import EffectsModel
from cotenant.predictors.interference.group import WorldGroup
from cotenant.predictors.interference.jobs import SoloIndex
from cotenant.predictors.interference.zoo import EFFECTS, member_names
from cotenant.profiles.runsfile import read_co_runs, read_solo_runs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path, default=Path("../shared/data/interference"))
    parser.add_argument("--zoo", default="all")
    options = parser.parse_args()
    every, solos = read_co_runs(options.folder), SoloIndex(read_solo_runs(options.folder))
    names = member_names(options.zoo)
    for world in TARGETS:
        runs = near([run for run in every if run.status != "unmeasured"], world)
        group = WorldGroup(sorted({(r.source, r.device_type) for r in runs}), ("effects-lean",), solos)
        group.judge = dict  # type: ignore[method-assign]  # nothing is chosen here
        group.fit(runs)
        rows, table, number = group.rows, group.table, group.table.worlds.index(world)
        effects = {n: EffectsModel(EFFECTS[n], table).fit(rows) for n in names if n in EFFECTS}
        top = float(group._ceilings[number])
        found = []
        for novelty in (KNOWN, ELSEWHERE):
            cases = left_out(names, effects, rows, table, number, novelty)
            assert cases is not None
            found.append(np.abs(np.minimum(cases.predicted, top) - rows.speed[cases.rows]).mean(axis=1))
        print(" ".join(world), flush=True)
        for name, pair, family in zip(names, *found, strict=True):
            print(f"  {name:18s} pair {pair:.3f}  architecture {family:.3f}", flush=True)


if __name__ == "__main__":
    main()
