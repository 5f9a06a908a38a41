"""Moves and resizes are told with what they did to the job's speed."""

from __future__ import annotations

from pathlib import Path

from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.policies.gandiva import Gandiva
from cotenant.report.explain import Explanation, explain
from cotenant.testing import FixedTruth, Harness

HEAVY = FixedTruth({("m", ("m",)): 0.4})


def story(tmp_path: Path, truth: FixedTruth, second_s: float, name: str) -> Explanation:
    settings = Settings(restore_s=0.5, state_bytes_per_s=1e9, slice_switch_s=0.6)
    h = Harness("1x2", Gandiva(most_loss=0.001), settings=settings, truth=truth, memory_bytes=16 * GIB)
    for job, runs_s in (("a", 2000.0), ("b", second_s), ("c", 2000.0)):
        h.submit(job, runs_s=runs_s, model="m", memory_bytes=6 * GIB, state_bytes=10**9)
    path = tmp_path / "events.jsonl"
    path.write_bytes(h.run().log)
    return explain(path, name)


def test_a_trial_tells_both_speeds_and_why_it_was_undone(tmp_path: Path) -> None:
    text = [step.text for step in story(tmp_path, HEAVY, 2000.0, "a").steps]
    packed = next(i for i, t in enumerate(text) if "Rule: pack " in t)
    assert text[packed + 1] == "Measured: speed 0.4; it was 0.495 before the change."
    undone = next(i for i, t in enumerate(text) if "Rule: unpack " in t)
    assert "sum of speeds 0.8, sum of turns 1" in text[undone]
    assert "added up to no more than turns give" in text[undone]
    assert text[undone + 1] == "Measured: speed 0.495; it was 0.4 before the change."


def test_a_move_tells_its_price_and_both_speeds(tmp_path: Path) -> None:
    # b leaves device 1 at 200 s, before the first look at pairs; c moves there: 1 s, 1 s and 0.5 s.
    text = [step.text for step in story(tmp_path, HEAVY, 200.0, "c").steps]
    moved = next(i for i, t in enumerate(text) if t.startswith("Moved to device 1;"))
    assert "Rule: height-drops (speed before 0.495" in text[moved]
    assert (
        text[moved + 1]
        == "Measured: speed 1 after 2.5 s of saving and loading; it was 0.495 before the change."
    )
