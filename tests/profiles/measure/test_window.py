"""Steps and windows: what counts, and what is left out at the edges."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.profiles.jobs.steps import Step, StepReader, step_hook
from cotenant.profiles.measure.window import pace, settled_at

SECOND = 1_000_000_000


def _steps(*seconds: float, cpu: bool = True) -> list[Step]:
    return [Step(int(s * SECOND), int(s * SECOND / 2) if cpu else None) for s in seconds]


def test_only_steps_that_lie_whole_inside_count() -> None:
    # Ends at 1, 3, 4, 5, 9: inside 2..8 are the ends at 3, 4, 5, hence two whole steps in 2 s.
    found = pace(_steps(1, 3, 4, 5, 9), 2 * SECOND, 8 * SECOND)
    assert found is not None
    assert (found.steps, found.seconds, found.cpu_s, found.speed) == (2, 2.0, 1.0, 1.0)


def test_fewer_than_one_step_is_no_speed() -> None:
    assert pace(_steps(1, 3, 9), 2 * SECOND, 8 * SECOND) is None
    assert pace([], 0, SECOND) is None
    assert pace(_steps(3, 3), 2 * SECOND, 8 * SECOND) is None


def test_cpu_time_that_was_not_reported_is_missing() -> None:
    found = pace(_steps(1, 2, 3, cpu=False), 0, 4 * SECOND)
    assert found is not None
    assert found.cpu_s is None


@given(st.floats(0.01, 0.5), st.floats(0.0, 0.4), st.integers(3, 40))
def test_a_steady_job_has_its_speed_wherever_the_window_lies(
    step_s: float, offset: float, count: int
) -> None:
    steps = [Step(int((offset + i * step_s) * SECOND)) for i in range(count + 50)]
    window = pace(steps, int(0.5 * SECOND), int((0.5 + count * step_s) * SECOND))
    if window is not None:
        assert window.speed == pytest.approx(1 / step_s, rel=1e-6)


def test_all_jobs_must_have_ended_a_step_after_the_settling_time() -> None:
    fast, slow = _steps(1.0, 1.2, 1.4, 1.6), _steps(1.1, 1.9)
    # Resumed at 1.0 with 0.3 s to settle: the fast one is ready at 1.4, the slow one at 1.9.
    assert settled_at([fast, slow], SECOND, 0.3) == int(1.9 * SECOND)
    assert settled_at([fast, slow[:1]], SECOND, 0.3) is None


def test_the_hook_and_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "steps"
    reader = StepReader(path)
    assert reader.read() == []
    monkeypatch.setenv("COTENANT_STEPS", str(path))
    report = step_hook()
    report()
    report()
    first = reader.read()
    assert len(first) == 2
    assert 0 < first[0].end_ns <= first[1].end_ns
    assert first[0].cpu_ns is not None
    assert reader.read() == []
    with path.open("ab") as file:
        file.write(b"epoch 1 loss 0.3\n%d" % (first[1].end_ns + 5))
    assert reader.read() == []  # half a line waits
    assert reader.strange == 1
    with path.open("ab") as file:
        file.write(b"\n7\n")  # the second goes back in time
    assert reader.read() == [Step(first[1].end_ns + 5, None)]
    assert reader.strange == 2


def test_without_a_listener_the_hook_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COTENANT_STEPS", raising=False)
    assert step_hook()() is None


def test_of_several_processes_of_a_run_the_first_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in ("1", "0"):
        monkeypatch.setenv("RANK", rank)
        step_hook(str(tmp_path / rank))()
    assert [p.name for p in tmp_path.iterdir()] == ["0"]
