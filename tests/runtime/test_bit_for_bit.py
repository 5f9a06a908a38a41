"""A job that is suspended and resumed, at any step, ends with the very same bits."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant import runtime
from cotenant.runtime import StatusFile

from .training import Job, Noisy, interrupted

CASES: dict[str, dict[str, Any]] = {
    "sgd": {},
    "adamw": {"optimizer": "adamw"},
    "accumulated": {"accumulate": 4},
    "stream": {"source": "stream"},
    "stream-2-workers": {"source": "stream", "workers": 2},
    "2-workers": {"workers": 2},
    "2-workers-kept": {"workers": 2, "persistent": True},
}


@pytest.mark.parametrize("case", CASES)
def test_suspended_in_an_epoch_at_its_end_and_at_its_begin(
    case: str, status: StatusFile, tmp_path: Path
) -> None:
    options = dict(CASES[case])
    # An epoch of 50 samples in eights has seven batches.
    stops = [3, 7, 8, 19]
    if options.get("workers"):  # each epoch of each life starts processes
        stops, options["total"] = [3, 7], 11
    whole = Job(None, **options).train()
    broken = interrupted(status, tmp_path / "state", stops, **options)
    assert len(whole.losses) == options.get("total", 30)
    assert broken.losses == whole.losses
    assert broken.weights() == whole.weights()
    assert broken.run.changes == ()


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.integers(1, 29), max_size=5), st.sampled_from([1, 3]))
def test_suspended_at_any_steps(
    status: StatusFile, memory_path: Path, stops: set[int], accumulate: int
) -> None:
    whole = Job(None, accumulate=accumulate).train()
    state = Path(tempfile.mkdtemp(dir=memory_path))
    broken = interrupted(status, state, sorted(stops), accumulate=accumulate)
    assert broken.losses == whole.losses
    assert broken.weights() == whole.weights()


def test_another_seed_ends_otherwise() -> None:
    """The comparison can fail: dropout, augmentation, order and weights all come from the seed."""
    assert Job(None, seed=1).train().weights() != Job(None).train().weights()


def test_c49_more_loader_workers_after_resume(status: StatusFile, tmp_path: Path) -> None:
    """Order and each sample's random numbers do not depend on the number of workers."""
    whole = Job(None, total=9).train()
    changes = {1: {"workers": 0}, 2: {"workers": 1}}
    broken = interrupted(status, tmp_path / "state", [2, 5], workers=2, total=9, changes=changes)
    assert broken.losses == whole.losses
    assert broken.weights() == whole.weights()


def test_each_sample_is_loaded_once_in_an_epoch_that_is_interrupted(
    status: StatusFile, tmp_path: Path
) -> None:
    first = Job(tmp_path, total=7)
    with pytest.raises(SystemExit):
        first.train(lambda step: status.give_order(step == 3))
    status.give_order(0)
    second = Job(tmp_path, total=7, seed=1).train()
    assert len(first.data.loaded) == 4 * 8
    assert sorted(first.data.loaded + second.data.loaded) == list(range(50))


def test_c49_a_stream_whose_workers_changed_says_so_before_it_goes_on(
    status: StatusFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        Job(tmp_path, source="stream", workers=2).train(lambda step: status.give_order(step == 3))
    with pytest.raises(runtime.StateError, match="loader workers 2 -> 0"):
        Job(tmp_path, source="stream", strict=True)
    assert Job(tmp_path, source="stream").run.changes == ("loader workers 2 -> 0",)
    assert "may differ in its last bits: loader workers 2 -> 0" in capsys.readouterr().err


def test_another_number_of_threads_is_told(status: StatusFile, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        Job(tmp_path).train(lambda step: status.give_order(step == 3))
    torch.set_num_threads(2)
    assert Job(tmp_path).run.changes == ("CPU threads 1 -> 2",)


def test_periodic_states_serve_a_job_that_was_killed(memory_path: Path) -> None:
    whole = Job(None).train()

    class KilledError(Exception):
        pass

    def kill(step: int) -> None:
        if step == 17:
            raise KilledError

    job = Job(memory_path, every_s=1e-9)
    with pytest.raises(KilledError):
        job.train(kill)
    again = Job(memory_path, seed=4)
    assert again.run.done == 17
    assert again.train().weights() == whole.weights()
    assert job.losses + again.losses == whole.losses
    assert len(list(memory_path.glob("state-*"))) == 1


def _epochs(state: Path | None, during: Any = lambda step: None, seed: int = 0) -> tuple[list[float], Any]:
    """Nested loops, validation at the end of each epoch, learning rate by epoch, and steps told by hand."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    noise = torch.Generator().manual_seed(3)
    loader = torch.utils.data.DataLoader(Noisy(20), batch_size=8, shuffle=True)
    told: list[float] = []
    run = runtime.attach(model, optimizer, scheduler, extra={"noise": noise}, state=state)
    for _ in run.epochs(3):
        model.train()
        for x, y in run.batches(loader):
            during(run.done)
            optimizer.zero_grad()
            jitter = 0.1 * torch.randn(x.shape, generator=noise)
            torch.nn.functional.cross_entropy(model(x + jitter), y).backward()
            optimizer.step()
            run.step()
        scheduler.step()
        with torch.no_grad():
            told.append(float(model(torch.rand(4, 6)).sum()))
    return told, model


@pytest.mark.parametrize("stop", range(1, 9))
def test_loops_of_ones_own(stop: int, status: StatusFile, tmp_path: Path) -> None:
    whole, model = _epochs(None)

    def suspend(step: int) -> None:
        status.give_order(step == stop - 1)

    with pytest.raises(SystemExit):
        _epochs(tmp_path, suspend)
    status.give_order(0)
    rest, again = _epochs(tmp_path, seed=9)
    # An epoch of three batches ends with what comes after it, even if the job left at its last step.
    assert len(rest) == 3 - (stop - 1) // 3
    assert rest == whole[-len(rest) :]
    assert torch.equal(model[0].weight, again[0].weight)
