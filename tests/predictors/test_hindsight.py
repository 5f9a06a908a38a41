"""What a runtime forecast would have said, from a trace."""

from __future__ import annotations

import polars as pl
import pytest

from cotenant.errors import ConfigError, UnknownNameError
from cotenant.model.jobs import Job
from cotenant.model.workload import Workload
from cotenant.predictors.hindsight import hindsight, learnt


def trace(durations: list[float], gap_s: float = 1e6, **columns: object) -> Workload:
    n = len(durations)
    frame = {"name": [f"run-{k}" for k in range(n)], "submit_s": [gap_s * k for k in range(n)]}
    return Workload(pl.DataFrame(frame | {"duration_s": durations, "gpus": [1] * n} | columns))


def test_each_job_is_predicted_from_those_that_ended_before_it_came() -> None:
    # All run 100 s: the first is guessed at an hour's scale, all later ones are exact.
    found = hindsight(trace([100.0] * 50), "recent")
    assert found.jobs == 50
    assert found.typical_factor == pytest.approx(1.0)


def test_nothing_is_learnt_from_jobs_that_still_run() -> None:
    # All come at once: nobody ended before anybody came, so every prediction is the first guess.
    together = hindsight(trace([100.0] * 50, gap_s=0.0), "recent")
    assert together.typical_factor > 10.0


def test_jobs_that_failed_teach_nothing() -> None:
    durations = [100.0, 5.0] * 20
    mixed = trace(durations, outcome=["done", "failed"] * 20)
    assert learnt(mixed).quantile_s(Job(id=99, name="run-99", submit_s=0.0), 0.05) == pytest.approx(100.0)
    assert hindsight(mixed, "history").jobs == 20


def test_a_running_job_is_compared_with_those_that_ran_as_long() -> None:
    forecast = learnt(trace([10.0] * 10 + [10_000.0] * 5 + [10.0] * 5))
    job = Job(id=99, name="run-99", submit_s=0.0)
    assert forecast.quantile_s(job, 0.5) == pytest.approx(10.0)
    assert forecast.quantile_s(job, 0.5, elapsed_s=60.0) == pytest.approx(10_000.0)
    # Nothing ever ran for a year: half of what did ends before twice as long.
    assert forecast.quantile_s(job, 0.5, elapsed_s=3.2e7) == pytest.approx(6.4e7)
    # It names no user, tenant or model, so none of these is shared.
    assert forecast.alike(job) == (20, ("name", "devices"))
    assert forecast.longest_s(job) == pytest.approx(10_000.0)


def test_a_trace_without_any_end_and_an_unknown_forecast_are_refused() -> None:
    with pytest.raises(ConfigError, match="no job of this trace ended well"):
        hindsight(trace([5.0], outcome=["failed"]), "recent")
    with pytest.raises(UnknownNameError, match='did you mean "recent"'):
        hindsight(trace([5.0]), "recentt")


@pytest.mark.data
def test_on_philly_quantiles_beat_the_lognormal_and_ranges_hold(data_dir) -> None:  # type: ignore[no-untyped-def]
    from cotenant.traces.load import read_trace

    workload = read_trace(str(data_dir / "traces" / "philly" / "philly_first_half.csv.gz"))
    old, new = hindsight(workload, "history"), hindsight(workload, "recent")
    # Measured: a factor of 3.03 against 1.32, and 88.9% against 89.6% inside.
    assert new.typical_factor < 1.5 < 2.5 < old.typical_factor
    assert new.width < old.width
    assert 0.88 <= new.inside <= 0.92
