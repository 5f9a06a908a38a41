"""Predictions of pairs that the fit had not seen: nothing of a pair's own labels gets into them."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import pytest

from cotenant.app.main import main
from cotenant.app.unseen import median_error, predict_unseen
from cotenant.errors import ConfigError
from cotenant.profiles.measure.campaign import JOURNAL
from cotenant.profiles.measure.records import Member, Repeat
from cotenant.profiles.runs import CoRun, CoSide, JobConfig
from cotenant.profiles.runsfile import read_co_runs

HEAVY = {"a": 0.9, "b": 0.7, "c": 0.5, "d": 0.3, "e": 0.2}


def _speed(job: str, *others: str) -> float:
    """Each neighbour takes the more, the heavier both are."""
    speed = 1.0
    for other in others:
        speed *= 1.0 - 0.5 * HEAVY[other] * (0.5 + HEAVY[job] / 2)
    return speed


def _run(*jobs: str, **replaced: float) -> CoRun:
    sides = tuple(
        CoSide(
            job=JobConfig(model=job),
            speed=replaced.get(job, _speed(job, *jobs[:i], *jobs[i + 1 :])),
        )
        for i, job in enumerate(jobs)
    )
    return CoRun(row_id="".join(jobs), source="s", device_type="cpu x1", sides=sides)


PAIRS = [_run(*jobs) for jobs in itertools.combinations_with_replacement(HEAVY, 2)]


def test_every_pair_is_predicted_and_threes_from_pairs() -> None:
    found = predict_unseen([*PAIRS, _run("a", "c", "e")], [])
    assert len(found) == 2 * 15 + 3
    assert {one.row_id for one in found} == {run.row_id for run in PAIRS} | {"ace"}
    error = median_error([one for one in found if one.jobs == 2])
    assert error is not None
    assert error < 0.05
    assert all(one.low <= one.predicted <= one.high for one in found)


def test_a_pairs_own_label_does_not_reach_its_prediction() -> None:
    changed = [_run("a", "b", a=0.05) if run.row_id == "ab" else run for run in PAIRS]
    before = {(u.row_id, u.job): u.predicted for u in predict_unseen(PAIRS, [])}
    after = {(u.row_id, u.job): u.predicted for u in predict_unseen(changed, [])}
    assert after["ab", "a"] == before["ab", "a"]
    assert after["ab", "b"] == before["ab", "b"]
    assert any(after[key] != before[key] for key in before if key[0] != "ab")


def test_too_few_pairs_are_refused() -> None:
    failed = msgspec.structs.replace(PAIRS[5], status="failed")
    with pytest.raises(ConfigError, match="5 pairs ran; predicting unseen ones needs at least 6"):
        predict_unseen([*PAIRS[:5], failed], [])
    assert median_error([]) is None


@pytest.mark.skipif(sys.platform != "linux", reason="core sets are measured on Linux")
def test_measure_fits_what_an_earlier_session_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _journal(tmp_path, HEAVY, PAIRS)
    capsys.readouterr()
    main_ends("measure", "jobs.toml", "-o", "out", "--quiet", "--fit", "--json")
    found = json.loads(capsys.readouterr().out)
    assert len(found["unseen"]) == 30
    assert found["median_error"]["pairs"] < 0.05
    assert found["median_error"]["larger"] is None
    assert (tmp_path / "out" / "fit.json").is_file()
    capsys.readouterr()
    device = read_co_runs(tmp_path / "out")[0].device_type
    main_ends("predict", "interference", "a", "e", "--fit", "out/fit.json", "--device", device)
    assert "this set" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform != "linux", reason="core sets are measured on Linux")
def test_few_pairs_are_fitted_without_a_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _journal(tmp_path, ["a", "b"], [_run("a", "a"), _run("a", "b"), _run("b", "b")])
    capsys.readouterr()
    main_ends("measure", "jobs.toml", "-o", "out", "--quiet", "--fit")
    shown = capsys.readouterr()
    assert "pairs that ran: 3; --fit writes fit.json all the same" in shown.err
    assert "the comparison on unseen pairs needs 6" in shown.err
    assert "the budget ended first; the same command with a larger --budget goes on" in shown.out
    assert "median error" not in shown.out
    assert (tmp_path / "out" / "fit.json").is_file()
    main_ends("measure", "jobs.toml", "-o", "out", "--quiet", "--fit", "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["unseen"], found["median_error"]["pairs"]) == ([], None)
    device = read_co_runs(tmp_path / "out")[0].device_type
    main_ends("predict", "interference", "a", "b", "--fit", "out/fit.json", "--device", device)


def _journal(folder: Path, names: Iterable[str], pairs: Sequence[CoRun]) -> None:
    """A file of jobs, and a folder ``out`` as if they had been measured."""
    names = list(names)
    jobs = "".join(f'[[job]]\nname = "{name}"\ncommand = ["true"]\nmodel = "{name}"\n' for name in names)
    head = '[measure]\ndevice = "cpu:0"\nbudget = "100ms"\nmin_repeats = 1\n'
    (folder / "jobs.toml").write_text(head + jobs)
    main_ends(
        "measure", "jobs.toml", "-o", "out", "--quiet"
    )  # makes the journal; a job that ends gives no speed
    with (folder / "out" / JOURNAL).open("ab") as file:
        for at, run in enumerate([*map(_run, names), *pairs]):
            beside = [side.job.model for side in run.sides]
            members = tuple(
                Member(job=name, steps=9, seconds=1.0, speed=10.0 * (side.speed or 0.0))
                for name, side in zip(beside, run.sides, strict=True)
            )
            repeat = Repeat(session=1, at_s=float(at), jobs=tuple(beside), members=members)
            file.write(msgspec.json.encode(repeat) + b"\n")


def main_ends(*words: str) -> None:
    """Run the command line, which must end with 0."""
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code in (0, None), words
