"""Where a job's saved state lies, told by ``explain`` from the logs of real runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cotenant.checks.scenarios import scenario
from cotenant.model.cluster import Cluster, DeviceType
from cotenant.model.poolevents import Stored, TierResized
from cotenant.model.pools import StateTier
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.policies.srtf import Srtf
from cotenant.report.explain import Explanation, explain
from cotenant.testing import Harness

TIERS = (
    StateTier(name="nvme", bytes_per_s=1.0 * GIB, capacity_bytes=80 * GIB),
    StateTier(name="store", bytes_per_s=0.5 * GIB),
)


def day(*tiers: StateTier) -> Harness:
    """Two jobs of 6 GiB on two devices; at 100 a short gang stops both, until 212; work begins 10 s after loading.

    With tiers: 12 GiB are saved at 1 GiB/s, by 112, and the gang runs 100 s.
    """
    plain = Cluster.uniform(2, gpus_per_node=2, gpu_type=DeviceType(name="gpu", memory_bytes=80 * GIB))
    cluster = msgspec.structs.replace(plain, state_tiers=tiers).check()
    h = Harness(cluster, Srtf(margin_s=0.0), settings=Settings(state_bytes_per_s=1.0 * GIB, restore_s=10.0))
    h.submit("a", runs_s=1000.0, memory_bytes=6 * GIB)
    h.submit("b", runs_s=1000.0, memory_bytes=6 * GIB)
    h.submit("gang", gpus=2, at_s=100.0, runs_s=100.0)
    return h


def steps(h: Harness, job: str, tmp_path: Path, *kinds: str) -> list[tuple[float, str]]:
    """(time, sentence) of the steps of these kinds, of one job."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(h.run().log)
    told: Explanation = explain(path, job)
    return [(step.t, step.text) for step in told.steps if step.what in kinds]


def test_where_the_state_of_a_suspended_job_waits_and_how_long_loading_takes(tmp_path: Path) -> None:
    h = day(*TIERS)
    assert steps(h, "b", tmp_path, "stored", "suspended", "loaded") == [
        (100.0, "Its state of 6,144 MiB is on its way to tier nvme (12,288 MiB of 81,920 MiB used)."),
        (
            112.0,
            "Suspended with 1m 40s of work kept; its state of 6,144 MiB waits in tier nvme"
            " (12,288 MiB of 81,920 MiB used); queued again: stopped for job 2 'gang' (lower-rank); waits for its rank.",
        ),
        # Both load at once, 12 GiB at 1 GiB/s.
        (224.0, "Its state of 6,144 MiB is loaded back from tier nvme, in 12s."),
    ]


def test_a_tier_that_shrinks_is_told_to_those_whose_state_lies_there(tmp_path: Path) -> None:
    def harness() -> Harness:
        h = day(*TIERS)
        # a's state, stored first, has to go: 6 GiB at 0.5 GiB/s. b's stays.
        h.happen(TierResized(150.0, 0, 8 * GIB, "maintenance"))
        # Nobody's state lies there any more.
        h.happen(TierResized(900.0, 0, 80 * GIB))
        return h

    resized = (
        150.0,
        "Tier nvme is to have 8,192 MiB instead of 81,920 MiB (maintenance); its state of 6,144 MiB lies there.",
    )
    assert steps(harness(), "a", tmp_path, "tier-resized", "stored", "spilled", "loaded") == [
        (100.0, "Its state of 6,144 MiB is on its way to tier nvme (6,144 MiB of 81,920 MiB used)."),
        resized,
        (150.0, "Its state of 6,144 MiB is on its way to tier store (6,144 MiB used), away from tier nvme."),
        (
            162.0,
            "Its state of 6,144 MiB lies in tier store (6,144 MiB used) now; its room in tier nvme is free.",
        ),
        (224.0, "Its state of 6,144 MiB is loaded back from tier store, in 12s."),
    ]
    assert steps(harness(), "b", tmp_path, "tier-resized", "spilled", "loaded") == [
        resized,
        (218.0, "Its state of 6,144 MiB is loaded back from tier nvme, in 6s."),
    ]
    assert steps(harness(), "gang", tmp_path, "tier-resized", "stored", "loaded") == []


def test_without_tiers_nothing_is_told_of_them(tmp_path: Path) -> None:
    h = day()
    (suspended,) = steps(h, "a", tmp_path, "suspended", "stored", "loaded")
    assert suspended[1].startswith("Suspended with 1m 40s of work kept; queued again")


@pytest.mark.parametrize("number", [0, 5, 7, 8, 24, 32])
def test_no_saved_state_is_left_over_in_what_is_told(number: int, tmp_path: Path) -> None:
    """Every state that was saved is loaded back, or its job ended without; explain never fails."""
    made = scenario(number, Srtf)
    tiers = (
        StateTier(name="host", bytes_per_s=1e9, capacity_bytes=9 * GIB),
        StateTier(name="store", bytes_per_s=2e8),
    )
    made.cluster = msgspec.structs.replace(made.cluster, state_tiers=tiers).check()
    run = made.run()
    path = tmp_path / "events.jsonl"
    path.write_bytes(run.log)
    stored = sorted({e.id for e in run.events if isinstance(e, Stored)})
    assert stored
    for job in stored:
        told = [step.what for step in explain(path, job).steps]
        assert 1 <= told.count("stored") >= told.count("loaded")
        # An attempt that ends while it saves has nothing to load.
        if told[-1] == "done" and "again" not in told:
            assert told.count("loaded") >= 1
