"""Cases of real users about elastic training: C49, C50, C53 (docs/cases.md)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from cotenant.elastic.supervisor import Supervisor


class Notes:
    """What the processes of a run noted in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)

    def _lines(self, kind: str) -> list[Any]:
        found = [
            json.loads(line)
            for path in self.folder.glob(f"{kind}-*")
            for line in path.read_text().splitlines()
        ]
        return sorted(found, key=lambda line: line[0])

    def read(self) -> list[tuple[int, int, float]]:
        """Step, number and noise of all samples that were read."""
        return [
            (step, n, e)
            for step, numbers, noise in self._lines("read")
            for n, e in zip(numbers, noise, strict=True)
        ]

    def done(self) -> dict[int, set[tuple[Any, ...]]]:
        """By step: processes, learning rate, loss, digest, as all processes have them."""
        found: dict[int, set[tuple[Any, ...]]] = {}
        for step, *rest in self._lines("done"):
            found.setdefault(step, set()).add(tuple(rest))
        return found

    def results(self) -> list[tuple[Any, ...]]:
        """Learning rate, loss and digest after each step; all processes have the same."""
        done = self.done()
        assert all(len(values) == 1 for values in done.values()), done
        return [next(iter(done[step]))[1:] for step in sorted(done)]


def _alone(play: Any, notes: Notes, **options: Any) -> int:
    options = {"script": "cases.py", "notes": str(notes.folder), **options}
    return int(type(play).alone.__globals__["Forked"](options, {"OMP_NUM_THREADS": "1"}).wait(300))


def test_c49_another_number_of_loader_workers_after_a_resume_changes_nothing(
    tmp_path: Path, play: Any
) -> None:
    usual = {"workers": 2, "batch": 5, "samples": 1000}
    whole = Notes(tmp_path / "whole")
    assert _alone(play, whole, loaders=2, **usual) == 0
    noise = [e for _, _, e in whole.read()]
    assert len(whole.results()) == 100 and len(set(noise)) == 1000
    first, state = Notes(tmp_path / "first"), tmp_path / "state"
    assert _alone(play, first, loaders=2, suspend=50, state=str(state), **usual) == 85
    assert sorted(first.done()) == list(range(50))
    for loaders in (2, 0, 4):
        then, copy = Notes(tmp_path / f"then{loaders}"), tmp_path / f"state{loaders}"
        shutil.copytree(state, copy)
        assert _alone(play, then, loaders=loaders, state=str(copy), **usual) == 0
        assert sorted(then.done()) == list(range(50, 100))
        assert first.results() + then.results() == whole.results()
        assert sorted(n for _, n, _ in first.read() + then.read()) == list(range(1000))
        assert sorted(first.read() + then.read()) == sorted(whole.read())
        assert {e for _, _, e in first.read()}.isdisjoint(e for _, _, e in then.read())
        assert {path.read_text() for path in then.folder.glob("grade-*")} == {"bitwise"}


def test_c50_four_workers_become_two_and_four_again_within_an_epoch(tmp_path: Path, play: Any) -> None:
    usual = {"workers": 4, "batch": 16, "samples": 1024}
    fixed, changed = Notes(tmp_path / "fixed"), Notes(tmp_path / "changed")
    assert _alone(play, fixed, **usual) == 0
    # The last step before each change is held until the supervisor has called the others together.
    gates = {6: tmp_path / "two", 11: tmp_path / "four"}
    options = {
        "script": "cases.py",
        "notes": str(changed.folder),
        "holds": {str(step): str(path) for step, path in gates.items()},
        **usual,
    }
    forked = type(play).alone.__globals__["Forked"]
    supervisor = Supervisor([], 1, 4, start=lambda env: forked(options, {"OMP_NUM_THREADS": "1", **env}))
    try:
        for last, wanted in ((5, 2), (10, 4)):
            _until(supervisor, lambda last=last: last in changed.done())
            before = supervisor.generation
            supervisor.want(wanted)
            _until(supervisor, lambda before=before: supervisor.generation > before)
            gates[last + 1].touch()
        _until(supervisor, lambda: supervisor.poll() is not None)
        assert supervisor.poll() == 0
    finally:
        supervisor.close()
    sizes = [{values[0] for values in changed.done()[step]} for step in range(16)]
    assert sizes == [{4}] * 7 + [{2}] * 5 + [{4}] * 4 and sorted(changed.done()) == list(range(16))
    # No sample twice, none left out, 64 at every step; schedule, losses and parameters as at a fixed size.
    samples = changed.read()
    assert sorted(n for _, n, _ in samples) == list(range(1024))
    assert [sum(s == step for s, _, _ in samples) for step in range(16)] == [64] * 16
    assert sorted(samples) == sorted(fixed.read())
    assert changed.results() == fixed.results()


def _until(supervisor: Supervisor, met: Any, limit_s: float = 200.0) -> None:
    import time

    deadline = time.monotonic() + limit_s
    while not met():
        assert time.monotonic() < deadline, supervisor.running
        supervisor.poll()
        time.sleep(0.01)


@pytest.mark.parametrize("least", ["bitwise", "statistical"])
def test_c53_another_kind_of_device_is_refused_or_told_and_never_called_the_same(
    tmp_path: Path, play: Any, least: str
) -> None:
    usual = {"workers": 2, "batch": 5, "samples": 200, "state": str(tmp_path / "state")}
    first, then, errors = Notes(tmp_path / "first"), Notes(tmp_path / "then"), tmp_path / "errors"
    assert _alone(play, first, suspend=5, instructions="X", **usual) == 85
    code = _alone(play, then, instructions="Y", least=least, errors=str(errors), **usual)
    said = errors.read_text()
    assert "grade statistical: CPU instructions X -> Y" in said
    if least == "bitwise":
        assert code == 1 and "this run asks for bitwise: put back what differs" in said
        assert then.done() == {}
        # on the old kind it still goes on, with the same bits
        again = Notes(tmp_path / "again")
        assert _alone(play, again, instructions="X", least=least, **usual) == 0
        assert {path.read_text() for path in again.folder.glob("grade-*")} == {"bitwise"}
    else:
        assert code == 0 and sorted(then.done()) == list(range(5, 20))
        assert {path.read_text() for path in then.folder.glob("grade-*")} == {"statistical"}
