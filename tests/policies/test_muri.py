"""Muri: stages, matching, order and preemption, and the contract on random days."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hyp
from hypothesis import strategies as st

from cotenant.errors import ConfigError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.jobs import Job
from cotenant.model.quantities import GIB
from cotenant.model.records import JobRecord, Status
from cotenant.model.settings import Settings
from cotenant.policies.muri import Muri
from cotenant.policies.published.muri_stages import Stages, efficiency, group_time, read_stages, stages_of
from cotenant.policies.queues.ranked_points import _ByRank
from cotenant.report.explain import explain
from cotenant.testing import FixedForecast, FixedTruth, Harness

from .sharing_jobs import check, clusters, jobs, settings

INSTANT = Settings(restore_s=0.0, state_bytes_per_s=1e18)
STAGES = ("input=3/1/0", "gpu=1/3/0", "net=0/1/3", "busy=2/2/0")


def day(cluster: str, policy: Muri | None = None, rules: Settings | None = INSTANT) -> Harness:
    """Devices of 20 GiB; side by side jobs run at 0.9."""
    return Harness(
        cluster,
        policy or Muri(stages=STAGES, period_s=100.0),
        settings=rules,
        truth=FixedTruth(default=0.9),
        forecast=FixedForecast(default=0.9, shares={"known": (0.6, 0.7, 0.25)}),
        memory_bytes=20 * GIB,
    )


# -- stages --------------------------------------------------------------------------------------


def test_time_of_a_group_by_hand() -> None:
    """a = (3, 1, 0), b = (1, 3, 0).

    Shifted by one, b does GPU, network, input while a does input, GPU, network: max(3, 3) + max(1, 0) + max(0, 1) = 5.
    Shifted by two: b does network, input, GPU: max(3, 0) + max(1, 1) + max(0, 3) = 7. Together: 4 + 4 = 4, 4, 0: 8.
    """
    a, b = (3.0, 1.0, 0.0), (1.0, 3.0, 0.0)
    assert group_time((b, a)) == 5.0
    assert efficiency((b, a)) == pytest.approx(8 / 15)
    assert group_time((a,)) == 4.0
    # Three alike, one shift each: every step lasts as long as the longest stage.
    assert group_time((a, a, a)) == 9.0
    # Perfect complements: each resource busy all the time.
    c = (1.0, 1.0, 1.0)
    assert efficiency((c, c, c)) == 1.0


@given(st.lists(st.tuples(*[st.integers(0, 9).map(float)] * 3), min_size=1, max_size=4))
@hyp(max_examples=60, deadline=None)
def test_a_group_is_no_faster_than_its_busiest_resource_and_no_slower_than_in_turn(
    members: list[Stages],
) -> None:
    total = group_time(tuple(sorted(members)))
    assert total >= max(sum(m[r] for m in members) for r in range(3))
    assert total >= max(sum(m) for m in members)
    assert total <= sum(sum(m) for m in members)


def test_where_stages_come_from() -> None:
    given_stages = read_stages(("a=b=1/2/3",))
    assert given_stages == {"a=b": (1.0, 2.0, 3.0)}
    forecast = FixedForecast(shares={"known": (0.6, 0.7, 0.25)})
    assert stages_of("a=b", 1, given_stages, forecast, "gpu") == (1.0, 2.0, 3.0)
    # Published (BERT, batch 4): 0.5 ms input, 160 ms GPU; network of 8 and of 9 devices is that of 8.
    assert stages_of("BERT-base/b4", 8, {}, forecast, "gpu") == (0.5, 160.0, 59.0)
    assert stages_of("BERT-base/b4", 9, {}, forecast, "gpu") == (0.5, 160.0, 59.0)
    # Else shares: host, and the larger of compute and bandwidth.
    assert stages_of("known", 1, {}, forecast, "gpu") == (0.25, 0.7, 0.0)
    for wrong in (("x",), ("x=1/2",), ("=1/2/3",), ("x=0/0/0",), ("x=-1/2/3",), ("x=1/2/inf",)):
        with pytest.raises(ConfigError):
            read_stages(wrong)


# -- groups --------------------------------------------------------------------------------------


def test_waiting_jobs_join_whom_they_complement() -> None:
    """input and gpu run; gpu and input wait. Pairs of unlike: 8/15 each; of alike: 8 / (3 x 6) each.

    gpu (1, 3, 0) twice: shifted by one 3 + 3 + 1 = 7, by two 1 + 3 + 3 = 7, together 8: 8 / 21.
    At 100 s, when a period begins, gpu joins input and input joins gpu.
    """
    h = day("1x2")
    h.submit("a", model="input", memory_bytes=GIB, runs_s=1000.0)
    h.submit("b", at_s=1.0, model="gpu", memory_bytes=GIB, runs_s=1000.0)
    h.submit("c", at_s=2.0, model="input", memory_bytes=GIB, runs_s=1000.0)
    h.submit("d", at_s=3.0, model="gpu", memory_bytes=GIB, runs_s=1000.0)
    run = h.run()
    assert [run.devices(name) for name in "abcd"] == [(0,), (1,), (1,), (0,)]
    assert [run.start_s(name) for name in "cd"] == [100.0, 100.0]
    (started,) = run.of("d", ev.Started)
    assert started.why.rule == "interleaves-best"
    assert started.why.facts == {"beside": [0], "efficiency": round(8 / 15, 4)}


def test_free_devices_go_first_and_need_no_period() -> None:
    h = day("1x2")
    h.submit("a", model="input", memory_bytes=GIB, runs_s=50.0)
    h.submit("b", at_s=7.0, model="gpu", memory_bytes=GIB, runs_s=50.0)
    run = h.run()
    assert (run.start_s("b"), run.devices("b")) == (7.0, (1,))


def test_groups_of_up_to_so_many() -> None:
    """Four of net, gpu, input, net on one device in rounds at 100 s; with at most two only the first."""
    for most, count in ((4, 4), (2, 2), (1, 1)):
        h = day("1x1", Muri(stages=STAGES, period_s=100.0, max_group=most, preemption=False))
        for number, model in enumerate(("net", "gpu", "input", "net")):
            h.submit(f"j{number}", at_s=1.0 * number, model=model, memory_bytes=GIB, runs_s=1000.0)
        run = h.run()
        assert sum((run.start_s(f"j{n}") or 0.0) <= 100.0 for n in range(4)) == count


def test_no_group_that_is_worse_than_turns() -> None:
    """a = (2, 2, 0) twice: shifted 2 + 2 + 2 = 6 < 2 x 4: fine. Input alone (4, 0, 0) twice: 8 = 2 x 4, not more: joins.

    Short (1, 0, 0), first in rank, beside (4, 4, 0): at least 8 > 2 x 1: it would rather take turns.
    """
    assert group_time(((2.0, 2.0, 0.0), (2.0, 2.0, 0.0))) == 6.0
    h = day("1x1", Muri(stages=("short=1/0/0", "long=4/4/0"), period_s=100.0, preemption=False))
    h.submit("a", model="long", memory_bytes=GIB, runs_s=1000.0)
    h.submit("b", at_s=1.0, model="short", memory_bytes=GIB, runs_s=10.0)
    assert h.run().start_s("b") == 1000.0


def test_memory_must_suffice_and_sizes_must_be_equal() -> None:
    h = day("1x2", Muri(stages=STAGES, period_s=100.0, preemption=False))
    h.submit("gang", gpus=2, model="input", memory_bytes=12 * GIB, runs_s=500.0)
    h.submit("single", at_s=1.0, model="gpu", memory_bytes=GIB, runs_s=500.0)
    h.submit("big", at_s=2.0, gpus=2, model="gpu", memory_bytes=9 * GIB, runs_s=500.0)
    h.submit("fits", at_s=3.0, gpus=2, model="gpu", memory_bytes=8 * GIB, runs_s=500.0)
    run = h.run()
    assert (run.start_s("fits"), run.devices("fits")) == (100.0, (0, 1))
    assert (run.start_s("single") or 0.0) > 500.0
    assert (run.start_s("big") or 0.0) > 500.0


@given(st.lists(st.lists(st.integers(0, 20), min_size=3, max_size=3), min_size=1, max_size=4))
@hyp(max_examples=50, deadline=None)
def test_the_matching_is_of_maximum_weight(rows: list[list[int]]) -> None:
    """Against all ways to give each waiting job a group of its own, or none."""
    from scipy.optimize import linear_sum_assignment

    weights = np.array(rows, float)
    got = weights[linear_sum_assignment(weights, maximize=True)].sum()
    count = len(rows)
    best = max(
        sum(weights[i, j] for i, j in enumerate(columns) if j < 3)
        for columns in itertools.permutations(range(3 + count), count)
    )
    assert got == best


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30), st.integers(0, 12))
@hyp(max_examples=80, deadline=None)
def test_the_first_in_rank_are_found_among_those_that_left(rows: list[tuple[int, bool]], count: int) -> None:
    """Against sorting: jobs of some lengths, some of which wait no more; one came back."""
    line = _ByRank(lambda record: record.predicted_s)
    records = []
    for number, (length_s, waits) in enumerate(rows):
        record = JobRecord.of(Job(id=number, name=str(number), submit_s=0.0), None, 0.0, float(length_s))  # type: ignore[arg-type]
        line.push(record, number)
        record.status = Status.PENDING if waits else Status.RUNNING
        records.append(record)
    if records:
        line.push(records[0], len(rows))
        records[0].status = Status.PENDING
    waiting = sorted([r for r in records if not r.status], key=lambda r: (r.predicted_s, r.key))
    assert [entry[3] for entry in line.first(count)] == waiting[:count]
    assert [entry[3] for entry in line.first(100)] == waiting


# -- order and preemption ------------------------------------------------------------------------


def test_least_remaining_service_first() -> None:
    """1 x 90 s goes before 2 x 50 s, though it came later."""
    h = day("1x2", Muri(preemption=False))
    h.submit("now", gpus=2, runs_s=10.0)
    h.submit("gang", at_s=1.0, gpus=2, runs_s=50.0)
    h.submit("one", at_s=2.0, runs_s=90.0)
    run = h.run()
    assert (run.start_s("one"), run.start_s("gang")) == (10.0, 100.0)


def test_a_job_gives_way_to_one_with_less_than_half_of_its_service() -> None:
    """At 100 s the whole-device job has 900 s left; 449 s is less than half, 450 s is not. Devices change at once.

    Neither shares (memory unknown). The short one runs 100 to 549 s, the long one is done at 1449 s.
    """
    for runs_s, start_s in ((449.0, 100.0), (450.0, 1000.0)):
        h = day("1x1", Muri(period_s=100.0))
        h.submit("long", runs_s=1000.0)
        h.submit("short", at_s=1.0, runs_s=runs_s)
        run = h.run()
        # At 200 s it has 800 s left, so who was refused at 100 s is refused then, too.
        assert run.start_s("short") == start_s
        if start_s == 100.0:
            assert run.end_s("long") == 1449.0
            assert [e.beneficiary for e in run.of("long", ev.Stopping)] == [1]


def test_without_lengths_who_has_had_less_goes_first() -> None:
    """At 3,300 s the running job has sunk (3,250 s): the newcomer takes its device, and keeps it: both sink once."""
    h = day("1x1", Muri(variant="L", period_s=100.0))
    h.submit("a", runs_s=5000.0)
    h.submit("b", at_s=1000.0, runs_s=100.0)
    run = h.run()
    assert (run.start_s("b"), run.end_s("b"), run.end_s("a")) == (3300.0, 3400.0, 5100.0)


def test_what_is_emptied_is_kept_until_all_have_saved() -> None:
    """A gang of two needs both devices of two jobs that save for 10 and 20 s: it starts at 120 s, nobody between."""
    slow = Settings(restore_s=0.0, state_bytes_per_s=float(GIB))
    h = day("1x2", Muri(period_s=100.0, max_group=1), slow)
    h.submit("a", memory_bytes=10 * GIB, runs_s=2000.0)
    h.submit("b", memory_bytes=20 * GIB, runs_s=2000.0)
    h.submit("gang", at_s=1.0, gpus=2, memory_bytes=GIB, runs_s=50.0)
    h.submit("later", at_s=105.0, memory_bytes=GIB, runs_s=500.0)
    run = h.run()
    assert (run.start_s("gang"), run.end_s("gang")) == (120.0, 170.0)
    assert run.start_s("later") == 170.0


def test_explain_tells_why_they_are_together_and_who_gave_way(tmp_path: Path) -> None:
    h = day("1x1")
    h.submit("a", model="input", memory_bytes=GIB, runs_s=1000.0)
    h.submit("b", at_s=1.0, model="gpu", memory_bytes=GIB, runs_s=1000.0)
    h.submit("whole", at_s=2.0, runs_s=100.0)
    (tmp_path / "log").write_bytes(h.run().log)
    story = explain(tmp_path / "log", "b").text
    assert "keeps input, GPU and network busy together best" in story
    assert "Told to leave its devices for job 2 'whole'" in story
    assert "those in its way have saved their state and gone" in explain(tmp_path / "log", "whole").text


def test_bad_parameters_are_refused() -> None:
    for wrong in (
        {"variant": "X"},
        {"max_group": 5},
        {"period_s": 0.0},
        {"factor": 1.0},
        {"levels": (2.0, 1.0)},
        {"stages": ("x",)},
    ):
        with pytest.raises(ConfigError):
            Muri(**wrong)


# -- contract ------------------------------------------------------------------------------------


@given(
    st.builds(
        Muri,
        variant=st.sampled_from(["S", "L"]),
        max_group=st.integers(1, 4),
        period_s=st.sampled_from([1.0, 2.5, 360.0]),
        levels=st.just((1.0, 4.0)),
        preemption=st.booleans(),
    ),
    clusters(),
    jobs(),
    settings(),
)
@hyp(max_examples=80, deadline=None)
def test_any_run(policy: Muri, cluster: Cluster, rows: list[dict[str, Any]], rules: Settings) -> None:
    """No refusals, no index needed, everybody ends."""
    check(policy, cluster, rows, rules)
