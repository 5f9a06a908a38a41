"""Two runs are told apart at the first step, worker and tensor, with the cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cotenant.elastic import diff
from cotenant.errors import InputError


@pytest.fixture
def logged(play: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(name: str, processes: int = 1, **options: Any) -> diff.Log:
        monkeypatch.setenv("COTENANT_ELASTIC_DIGESTS", str(tmp_path / name))
        options = {"model": "gates", "epochs": 1} | options
        if processes == 1:
            play.alone(**options)
        else:
            play.together(processes, **options)
        return diff.read(tmp_path / name)

    return run


def test_one_and_three_processes_have_the_same_digests(logged: Any) -> None:
    alone, three = logged("a"), logged("b", 3)
    assert len(alone.steps) == 6
    assert sorted(alone.records) == sorted(three.records)
    assert three.contradictions == []
    assert diff.compare(alone, three) is None


def test_another_learning_rate_is_found_in_the_optimiser(logged: Any) -> None:
    found = diff.compare(logged("a"), logged("b", optimizer="adamw"))
    assert found is not None
    assert (found.step, found.worker, found.cause) == (0, None, "optimiser")


def test_another_order_of_sums_is_a_reduction(logged: Any) -> None:
    found = diff.compare(logged("a", model="lstm"), logged("b", model="lstm", order="sequence"))
    assert found is not None
    assert (found.step, found.worker, found.cause) == (0, None, "reduction")


@pytest.mark.parametrize(
    ("field", "cause"), [("batch", "loader"), ("before", "rng"), ("after", "rng"), ("gradients", "kernel")]
)
def test_what_differs_in_a_turn_names_the_cause(logged: Any, field: str, cause: str) -> None:
    log = logged("a")
    record = dict(log.records[2, "turn", 1])
    record[field] = 1 if field == "batch" else {**record[field], next(iter(record[field])): 1}
    other = log._replace(records=log.records | {(2, "turn", 1): record})
    found = diff.compare(log, other)
    assert found is not None
    assert (found.step, found.worker, found.cause) == (2, 1, cause)


def test_a_torn_last_line_is_passed_over_and_a_folder_without_logs_is_refused(
    logged: Any, tmp_path: Path
) -> None:
    log = logged("a")
    with next((tmp_path / "a").glob("*.jsonl")).open("a") as file:
        file.write('{"kind":"tu')
    assert diff.read(tmp_path / "a") == log
    with pytest.raises(InputError, match="no digests there"):
        diff.read(tmp_path)
