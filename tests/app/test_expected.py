"""``simulate`` and ``explain`` say how right the forecast of running times was."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_the_terminal_json_and_explain_tell_it(inside: Run, jobs_csv: Path) -> None:
    path = jobs_csv.parent / "three.csv"
    path.write_text(
        "name,submit_s,duration_s,gpus,outcome\na,0,1000,1,done\nb,5,100,1,done\nc,9,50,1,failed\n"
    )
    words = ("simulate", str(path), "-p", "srtf,fifo", "--gpus", "1", "--runtime", "perfect", "-o", "o")
    done = inside(*words)
    assert done.returncode == 0, done.stderr
    assert (
        "srtf: running times were expected within x1 (median); 100 % inside the 90 % interval; neither too long nor"
        " too short; of 2 jobs done (1 ended otherwise)"
    ) in done.stdout
    assert "fifo: running times" not in done.stdout
    srtf, fifo = json.loads(inside(*words, "--force", "--json").stdout)["policies"]
    assert (srtf["mean"]["runtime_factor_median"], srtf["mean"]["runtime_jobs"]) == (1.0, 2.0)
    assert fifo["mean"]["runtime_factor_median"] is None
    told = inside("explain", "o", "--policy", "srtf", "b").stdout
    assert "; expected to run 1m 40s alone on the reference device." in told
    assert "Alone it runs 1m 40s, expected were 1m 40s: as expected." in told
    assert "expected" not in inside("explain", "o", "--policy", "fifo", "b").stdout
