"""Runs a script for a few of its elastic steps, and notes operators that have no deterministic kernel.

``python -m cotenant.elastic.checks.watched FOLDER STEPS SCRIPT [ARGS]``: one process, started by ``equal``.
"""

from __future__ import annotations

import functools
import json
import os
import runpy
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cotenant.elastic.failing import FOREIGN
from cotenant.elastic.process import Process
from cotenant.elastic.run import Run, Step
from cotenant.elastic.sharded_process import ShardedProcess

__all__ = ["main"]

_WORDS = "does not have a deterministic implementation"


class Watch:
    """Notes warnings with the place in the user's own code from which they come.

    Parameters
    ----------
    path : Path
        File that lines are appended to.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: set[tuple[str, str, int]] = set()
        self._show = warnings.showwarning
        warnings.showwarning = self._shown

    def listen(self) -> None:
        """Hear every such warning, whatever filters the script has set."""
        warnings.filterwarnings("always", message=f".*{_WORDS}")

    def _shown(self, message: Warning | str, *rest: Any, **more: Any) -> None:
        if _WORDS not in str(message):
            self._show(message, *rest, **more)
            return
        frames = traceback.extract_stack()[:-1]
        own = [one for one in frames if not one.filename.startswith(("<frozen", *FOREIGN))]
        operator = str(message).split()[0]
        file, line = (own[-1].filename, own[-1].lineno or 1) if own else ("", 1)
        key = (operator, file, line)
        if key not in self._seen:
            self._seen.add(key)
            self.note(operator=operator, file=file, line=line, text=own[-1].line if own else "")

    def note(self, **values: Any) -> None:
        """Append a line."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")


def _patch(folder: Path, limit: int, watch: Watch) -> None:
    make, take = Run.__init__, Run.steps

    @functools.wraps(make)
    def made(self: Run, *given: Any, **more: Any) -> None:
        import torch

        if more.get("state") is not None:
            more["state"] = folder / "state"  # the script's own folder stays as it is
        make(self, *given, **more)
        if torch.are_deterministic_algorithms_enabled():
            torch.use_deterministic_algorithms(True, warn_only=True)
        watch.listen()
        watch.note(most=self._settings.leaves)

    @functools.wraps(take)
    def taken(self: Run, *given: Any, **more: Any) -> Iterator[Step]:
        yield from take(self, *given, **more)
        if self._process is not None and self._process.place.step >= limit:
            sys.stdout.flush()
            raise SystemExit(0)  # what the script does after its loop is not looked at

    Run.__init__, Run.steps = made, taken  # type: ignore[method-assign]
    for kind in (Process, ShardedProcess):
        if "boundary" in vars(kind):
            _end_at(kind, limit)


def _end_at(kind: Any, limit: int) -> None:
    go_on = kind.boundary

    @functools.wraps(go_on)
    def boundary(self: Any, *, end: bool) -> bool:
        last = self.place.step >= limit
        over = go_on(self, end=end or last)
        return bool(over or last)

    kind.boundary = boundary


def main(words: Sequence[str]) -> None:
    """Run the script as ``python SCRIPT ARGS`` does."""
    folder, limit, script = Path(words[0]), int(words[1]), words[2]
    os.environ.pop("COTENANT_STATE", None)
    _patch(folder, limit, Watch(folder / f"heard-{os.getpid()}.jsonl"))
    sys.argv = [script, *words[3:]]
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
