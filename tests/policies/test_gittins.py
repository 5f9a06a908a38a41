"""Gittins index: against its definition, declared and learned."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as hyp
from hypothesis import strategies as st

from cotenant.errors import ConfigError
from cotenant.model import events as ev
from cotenant.model.service import service_edge_s
from cotenant.model.settings import Settings
from cotenant.policies.gittins import Gittins, gittins_indices
from cotenant.testing import Harness

FREE = Settings(restore_s=0.0)


@hyp(max_examples=100, deadline=None)
@given(counts=st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_the_index_is_the_best_ratio_over_all_quanta(counts: list[int]) -> None:
    ends = [(service_edge_s(k) + service_edge_s(k + 1)) / 2 for k, n in enumerate(counts) for _ in range(n)]
    for number, index in enumerate(gittins_indices(counts)):
        attained = service_edge_s(number)
        left = [s - attained for s in ends if s > attained]
        ratios = [0.0]
        for k in range(number + 1, len(counts) + 1):
            quantum = service_edge_s(k) - attained
            done = sum(s <= quantum for s in left)
            if done:
                ratios.append(done / sum(min(s, quantum) for s in left))
        assert index == pytest.approx(max(ratios))


def test_a_declared_distribution_orders_jobs_of_one_level() -> None:
    # Half of all jobs end near 10 GPU-seconds, half near 1000: having attained 20 bodes ill,
    # having attained 900 bodes well. All are on the only level but one, far below its end.
    policy = Gittins(levels=(5000.0,), services=(10.0,) * 10 + (1000.0,) * 10)
    h = Harness("1x1", policy, settings=FREE)
    h.submit("young", runs_s=1000.0)
    h.submit("urgent1", at_s=20.0, runs_s=5.0, priority=1)
    h.submit("old", at_s=21.0, runs_s=1000.0, priority=1)
    h.submit("urgent2", at_s=925.0, runs_s=5.0, priority=2)
    h.happen(ev.PriorityChanged(t=926.0, id=2, priority=0))
    run = h.run()
    # young has attained 20 when it is stopped, old (25 to 925) 900; both wait at 930.
    assert run.starts("old") == [25.0, 930.0]
    assert run.starts("young") == [0.0, 1030.0]


def test_without_a_distribution_a_level_is_first_come_first_served() -> None:
    h = Harness("1x1", Gittins(levels=(5000.0,)), settings=FREE)
    h.submit("young", runs_s=1000.0)
    h.submit("urgent1", at_s=20.0, runs_s=5.0, priority=1)
    h.submit("old", at_s=21.0, runs_s=1000.0, priority=1)
    h.submit("urgent2", at_s=925.0, runs_s=5.0, priority=2)
    h.happen(ev.PriorityChanged(t=926.0, id=2, priority=0))
    run = h.run()
    assert run.starts("young") == [0.0, 930.0]


def test_what_is_learned_is_taken_up_as_the_number_of_jobs_grows_by_a_quarter() -> None:
    h = Harness("1x1", Gittins(least_jobs=4), settings=FREE)
    for i in range(10):
        h.submit(f"j{i}", runs_s=2.0)
    run = h.run()
    memos = [e.memo for e in run.events if isinstance(e, ev.MemoSaved)]
    # From 4 on, then at least 5, 6.25, 8.75 jobs.
    assert [m["ended"] for m in memos] == [4, 5, 7, 9]
    # 2 GPU-seconds are class 5.
    assert memos[-1]["counts"] == [0, 0, 0, 0, 0, 9]


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(ConfigError, match="services must be finite"):
        Gittins(services=(-1.0,))
