"""The log of each policy on one fixed day, byte for byte."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import msgspec
import pytest

from cotenant import registry
from cotenant.engine.log import read_log
from cotenant.engine.state import State
from cotenant.model import events as ev
from cotenant.model.settings import Settings

FOLDER = Path(__file__).resolve().parent
_spec = importlib.util.spec_from_file_location("golden_regenerate", FOLDER / "regenerate.py")
assert _spec is not None
assert _spec.loader is not None
regenerate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(regenerate)

POLICIES = registry.names("policy")


@pytest.mark.parametrize("policy", POLICIES)
def test_the_log_is_the_golden_one_byte_for_byte(policy: str) -> None:
    path = FOLDER / f"{policy}.jsonl"
    assert path.is_file(), f"no golden log; python tests/golden/regenerate.py {policy}"
    found = regenerate.golden_day(registry.load("policy", policy)()).run().log.splitlines()
    golden = path.read_bytes().splitlines()
    # The first line holds the version of the package, which a release changes.
    first, expected = msgspec.json.decode(found[0]), msgspec.json.decode(golden[0])
    assert {**first, "version": ""} == {**expected, "version": ""}
    for number, (one, two) in enumerate(zip(found[1:], golden[1:], strict=False), 2):
        assert one == two, f"{path.name}:{number}"
    assert len(found) == len(golden)


def test_no_golden_log_is_left_over_or_large() -> None:
    logs = {path.stem: path.stat().st_size for path in FOLDER.glob("*.jsonl")}
    assert set(logs) == set(POLICIES)
    assert max(logs.values()) < 60_000


@pytest.mark.parametrize("policy", POLICIES)
def test_golden_logs_can_be_read_and_folded_by_this_version(policy: str) -> None:
    events = list(read_log(FOLDER / f"{policy}.jsonl"))
    opened = events[0]
    assert isinstance(opened, ev.Opened)
    state = State(opened.cluster, msgspec.convert(opened.settings, Settings))
    for event in events:
        state.apply(event)
    assert state.counts["submitted"] == 30
    assert (state.records, len(state.queue)) == ({}, 0)


def test_the_day_of_the_golden_logs_has_what_it_is_meant_to_have() -> None:
    seen = {type(e) for policy in ("fifo", "srtf") for e in read_log(FOLDER / f"{policy}.jsonl")}
    assert {ev.NodeDown, ev.DeviceDown, ev.Drained, ev.CancelRequested, ev.Rejected} <= seen
    assert {ev.PriorityChanged, ev.TenantLimitChanged, ev.Rated, ev.Suspended, ev.Held} <= seen
    ends = {(e.outcome, e.final) for e in read_log(FOLDER / "fifo.jsonl") if isinstance(e, ev.Ended)}
    assert {("done", True), ("failed", False), ("lost", False)} <= ends
