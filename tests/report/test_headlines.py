"""The sentence that says when policies cannot differ."""

import pytest

from cotenant.report.headlines import nobody_waits, stuck


def summary(wait: float | None, gpus: int = 64, used: float = 10.0) -> dict[str, float | None]:
    return {"longest_wait_s": wait, "gpus": gpus, "goodput_gpus_mean": used}


def test_where_nobody_waits_a_smaller_cluster_is_suggested() -> None:
    # 10 devices do useful work; a quarter more is 12.5, in nodes of 8 that is 16.
    told = nobody_waits([summary(0.0), summary(0.5)])
    assert told is not None
    assert told.startswith("No job ever waits: of 64 devices 10 do useful work")
    assert "--gpus 16" in told


def test_a_cluster_that_is_small_already_gets_no_such_advice() -> None:
    told = nobody_waits([summary(0.0, gpus=8)])
    assert told == "No job ever waits: of 8 devices 10 do useful work on average."


@pytest.mark.parametrize("summaries", [[], [summary(0.0), summary(60.0)], [summary(None)]])
def test_nothing_is_said_where_anyone_waits_or_nothing_is_known(
    summaries: list[dict[str, float | None]],
) -> None:
    assert nobody_waits(summaries) is None


def test_jobs_that_never_start_and_refused_decisions_are_told_for_all_seeds_together() -> None:
    first = {
        "jobs_submitted": 2000,
        "jobs_never_started": 2000,
        "refused_by_reason": {"isolation": 5, "memory": 1995},
    }
    told = stuck("mine.py:Pairs", [first])
    assert told == (
        "mine.py:Pairs: 2,000 of 2,000 jobs never started; "
        "2,000 decisions refused: memory (1,995), isolation (5)."
    )
    second = {"jobs_submitted": 2000, "jobs_never_started": 0, "refused_by_reason": {"memory": 5}}
    told = stuck("p", [first, second])
    assert told == (
        "p: 2,000 of 4,000 jobs never started; "
        "2,005 decisions refused: memory (2,000), isolation (5), 2 seeds together."
    )


def test_a_run_without_refusals_in_which_all_start_needs_no_such_sentence() -> None:
    done = {"jobs_submitted": 3, "jobs_never_started": 0, "refused_by_reason": {}}
    assert stuck("fifo", [done]) is None
    assert stuck("fifo", []) is None
