"""The sentence that says when policies cannot differ."""

import pytest

from cotenant.report.headlines import nobody_waits


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
