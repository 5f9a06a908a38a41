"""The second half of the demo: real training jobs on this machine's cores, one at a time and shared."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cotenant.app.console import note, print_table, say, warn

if TYPE_CHECKING:
    from cotenant.twin.study import Study

__all__ = ["show_live"]

_JOBS, _WORK_S = 8, (3.0, 5.0)
_SHARED = "cotenant:doubt=0"


def show_live(folder: Path, *, quiet: bool = False) -> None:
    """Measure two kinds of jobs, run eight of them twice, and show what was predicted and what came of it.

    Everything lives in temporary folders and is gone afterwards; where it cannot run, that is said and nothing
    else happens.
    """
    from cotenant.errors import CotenantError

    if not sys.platform.startswith("linux") or not hasattr(os, "sched_setaffinity"):
        warn("the live half of the demo is left out: it binds jobs to CPU cores, which needs Linux")
        return
    try:
        with tempfile.TemporaryDirectory(prefix="cotenant-demo-") as measured:
            found = _study(Path(measured) / "measured", quiet=quiet)
        _write(folder, found)
    except (CotenantError, OSError) as error:
        warn(f"the live half of the demo did not run here: {error}")
        return
    _show(found)
    if not quiet:
        note(
            f"live page: {folder / 'twin.html'}; now try it yourself: cotenant up, cotenant submit -- COMMAND"
        )


def _study(measured: Path, *, quiet: bool) -> Study:
    from cotenant.twin.mix import PLAIN, draw
    from cotenant.twin.study import BASELINE, device_names, known_of, study

    tell = (lambda text: None) if quiet else note
    devices = device_names()
    where = f"core {devices[0]} alone, as there is no other" if len(devices) == 1 else " and ".join(devices)
    tell(f"now for real: {_JOBS} small training jobs on {where}, by a scheduler of their own")
    mix = draw(PLAIN, _JOBS, work_s=_WORK_S, gap_s=0.5)
    known, table = known_of(mix, measured, devices[0], budget_s=25.0, window_s=0.8, tell=tell)
    return study(
        mix,
        {BASELINE: BASELINE, "cotenant": _SHARED},
        measured,
        repeats=1,
        settings={"max_sharers": 2},
        known=known,
        table=table,
        tell=tell,
    )


def _write(folder: Path, found: Study) -> None:
    from cotenant.report.tables import plain_json
    from cotenant.twin.page import html_page, plain

    folder.mkdir(parents=True, exist_ok=True)
    command = "cotenant demo --live"
    for name, text in (
        ("twin.json", plain_json(plain(found, command))),
        ("twin.html", html_page(found, command)),
    ):
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def _show(found: Study) -> None:
    alone, shared = found.played[0], found.played[-1]
    rows = []
    for what, number in (("mean completion time", "jct_s"), ("all jobs done after", "makespan_s")):
        for kind in ("simulated", "live"):
            one, other = (getattr(getattr(run, kind), number) for run in (alone, shared))
            told = "predicted" if kind == "simulated" else "measured"
            rows.append((what, told, f"{one:.1f} s", f"{other:.1f} s", f"{100 * (other - one) / one:+.0f} %"))
    say("")
    heads = ("real jobs on this machine", "", "one per device", "shared", "change")
    print_table(heads, rows, right=heads[2:])
    say(
        f"{shared.live.shared} of {len(shared.live.fates)} jobs started beside another one. Half of the jobs keep a core busy, half wait "
        "for their data most of the time: predicted from their steps, measured alone and in pairs a minute ago."
    )
    others = max(run.others for run in found.played)
    if others > 0.1:
        say(
            f"Other processes had up to {100 * others:.0f} % of the cores meanwhile, which no prediction here knows."
        )
