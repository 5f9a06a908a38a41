"""Whole lives of the live scheduler on a hostile machine: what must hold does, for every seed.

``COTENANT_SEEDS`` says how many seeds each policy gets; ``make test-long`` has thousands.
"""

from __future__ import annotations

import gc
import os
from collections import Counter

import pytest

from cotenant import registry
from cotenant.checks.trials import Faults, main, trial
from cotenant.model import events as ev

SEEDS = int(os.environ.get("COTENANT_SEEDS", "100"))
CHUNK = 10


def _failures(policy: str, seeds: range) -> list[str]:
    failed = []
    for seed in seeds:
        found = trial(seed, registry.load("policy", policy))
        if found.wrong:
            again = f"python -m cotenant.checks.trials --policy {policy} --seed {seed}"
            failed.append(f"{again}: {'; '.join(found.wrong[:3])}")
    gc.collect()  # each trial is a world of cycles
    return failed


@pytest.mark.parametrize("policy", ["fifo", "colocate", "cotenant"])
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_job_is_lost_or_runs_twice_whatever_dies(policy: str, first: int) -> None:
    assert _failures(policy, range(first, min(first + CHUNK, SEEDS))) == []


@pytest.mark.parametrize("policy", registry.names("policy"))
def test_every_policy_works_unchanged_on_a_hostile_machine(policy: str) -> None:
    assert _failures(policy, range(5000, 5000 + max(4, SEEDS // 50))) == []


FAULTS = {
    "acts before the log is written": (Faults(acts_before_writing=True), "no log says so"),
    "forgets to check epochs": (Faults(forgets_epochs=True), ""),
    "starts a serial that was started before": (Faults(forgets_claims=True), "runs as serials"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_bug_is_found(fault: str) -> None:
    faults, words = FAULTS[fault]
    for seed in range(60):
        found = trial(seed, registry.load("policy", "cotenant"), faults)
        if found.wrong and any(words in line for line in found.wrong):
            return
    pytest.fail(f"a scheduler that {fault} passes every trial")


def test_the_same_seed_is_the_same_life() -> None:
    one, two = (trial(7, registry.load("policy", "cotenant")) for _ in range(2))
    assert list(one.disk.read()) == list(two.disk.read())
    assert (one.lives, one.world.now) == (two.lives, two.world.now)


def test_trials_meet_what_they_are_made_to_survive() -> None:
    """A trial in which nothing goes wrong would prove nothing."""
    met: Counter[str] = Counter()
    for seed in range(40):
        for policy in ("cotenant", "las"):
            found = trial(seed, registry.load("policy", policy))
            met["restarts"] += found.lives - 1
            for _, event in found.disk.read():
                met[type(event).__name__] += 1
                if isinstance(event, ev.Ended):
                    met[event.outcome] += 1
                    met[event.detail.split(" ", maxsplit=1)[0]] += 1
                if isinstance(event, ev.Restarted):
                    met["adopted"] += len(event.adopted)
                    met["asked"] += len(event.asked)
    assert met["restarts"] > 80
    for what in ("adopted", "asked", "done", "failed", "lost", "cancelled", "preempted"):
        assert met[what] > 3, f"{what}: {met[what]}"
    for kind in (ev.Suspended, ev.Paused, ev.ForeignUse, ev.DeviceDown, ev.Awaited, ev.Rejected, ev.Resized):
        assert met[kind.__name__] > 3, f"{kind.__name__}: {met[kind.__name__]}"


def test_a_trial_is_replayed_by_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--policy", "fifo", "--seed", "3"]) == 0
    said = capsys.readouterr().out
    assert '"e":"opened"' in said
    assert said.endswith("nothing went wrong\n")
