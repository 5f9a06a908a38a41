"""How well running times are known before a job starts: error and coverage on real traces.

    python -m bench.runtime_error [TRACE ...]

The same as ``cotenant predict runtime TRACE --evaluate`` for each of them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cotenant.predictors.hindsight import FORECASTS, hindsight
from cotenant.traces.load import read_trace

DATA = Path(os.environ.get("COTENANT_DATA", "../shared/data")) / "traces"
TRACES = ("philly/philly_first_half.csv.gz", "openb2023/openb_pod_list_default.csv")


def main() -> None:
    """Print a table."""
    print("trace | forecast | jobs | median off by a typical factor of | MAE of ln | inside the 90% range")
    for given in sys.argv[1:] or [str(DATA / name) for name in TRACES]:
        workload = read_trace(given)
        for name in FORECASTS:
            found = hindsight(workload, name)
            numbers = f"x{found.typical_factor:.2f} | {found.mae_ln:.3f} | {found.inside:.1%}"
            print(f"{Path(given).name} | {name} | {found.jobs:,} | {numbers}")


if __name__ == "__main__":
    main()
