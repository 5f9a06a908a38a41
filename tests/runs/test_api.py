"""The Python API: the same words as the command line."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import cotenant
from cotenant.errors import ConfigError, InputError, PolicyError, UnknownNameError
from cotenant.model.events import Closed, NodeDown, NodeUp, Opened
from cotenant.model.plan import Plan
from cotenant.policies.fifo import Fifo
from cotenant.profiles.hashes import sha256_of


def three_jobs() -> cotenant.Workload:
    """a: 0 to 100; b: 0 to 300; c, submitted at 50, wants both devices: 300 to 350."""
    return cotenant.Workload(
        pl.DataFrame(
            {
                "name": ["a", "b", "c"],
                "submit_s": [0.0, 0.0, 50.0],
                "duration_s": [100.0, 300.0, 50.0],
                "gpus": [1, 1, 2],
            }
        )
    )


def test_a_run_gives_frames_numbers_and_events() -> None:
    result = cotenant.simulate(three_jobs(), 2)
    assert result.summary["jct_s_mean"] == pytest.approx((100 + 300 + 300) / 3)
    by_name = {row["name"]: row for row in result.jobs.iter_rows(named=True)}
    assert by_name["c"]["wait_s"] == 250.0
    assert by_name["a"]["jct_s"] == 100.0
    assert result.timeline.height > 0
    events = list(result.events())
    assert isinstance(events[0], Opened)
    assert isinstance(events[-1], Closed)
    assert (events[0].policy, events[0].seed) == ("fifo", 0)
    assert events[-1].events == len(events)


def test_a_policy_may_be_an_object_and_forecasts_may_be_left_out() -> None:
    class Named(Fifo):
        """First come, first served."""

    result = cotenant.simulate(three_jobs(), 2, Named(), forecast=None, runtime=None)
    assert result.policy == "Named"
    opened = next(iter(result.events()))
    assert isinstance(opened, Opened)
    assert opened.forecast["kind"] == "none"
    assert opened.forecast["runtime"] == {"kind": "none"}


def test_an_error_in_a_policy_is_a_policy_error_that_says_where() -> None:
    class Broken(Fifo):
        """Raises."""

        def decide(self, view: Any) -> Plan:
            raise KeyError("oops")

    with pytest.raises(PolicyError, match="policy Broken raised KeyError: 'oops'"):
        cotenant.simulate(three_jobs(), 2, Broken())


def test_the_folder_of_a_run_can_be_opened_again(tmp_path: Path) -> None:
    result = cotenant.simulate(three_jobs(), 2, out=tmp_path / "o", seed=4)
    again = cotenant.Result.open(tmp_path / "o")
    assert (again.policy, again.seed) == ("fifo", 4)
    assert again.summary == result.summary
    assert again.jobs.equals(result.jobs)
    manifest = json.loads((tmp_path / "o" / "manifest.json").read_text())
    assert manifest["config"] is None
    assert manifest["runs"][0]["log_sha256"] == sha256_of(result.folder / "events.jsonl")
    with pytest.raises(ConfigError, match="no run of policy 'las'; it has: fifo seed 4"):
        cotenant.Result.open(tmp_path / "o", policy="las")


def test_equal_arguments_give_equal_logs_and_another_seed_does_not(tmp_path: Path) -> None:
    jobs = cotenant.generate("steady", jobs=30, seed=2)
    hashes = [
        sha256_of(cotenant.simulate(jobs, 8, seed=seed, out=tmp_path / str(i)).folder / "events.jsonl")
        for i, seed in enumerate((1, 1, 2))
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_incidents_happen() -> None:
    result = cotenant.simulate(three_jobs(), 2, incidents=[NodeDown(120.0, 0, "power"), NodeUp(200.0, 0)])
    # b loses its device at 120 and begins again at 200: 200 + 300 = 500; then c until 550.
    assert result.summary["makespan_s"] == pytest.approx(550.0)


def test_settings_count() -> None:
    result = cotenant.simulate(three_jobs(), 2, settings=cotenant.Settings(start_s=10.0))
    # Each start holds its devices for 10 s more: a 110, b 310, c from 310 to 370.
    assert result.summary["makespan_s"] == pytest.approx(370.0)


def test_bad_input_is_refused_with_words() -> None:
    with pytest.raises(ConfigError, match="give a cluster"):
        cotenant.simulate(three_jobs())
    with pytest.raises(ConfigError, match="at least one device"):
        cotenant.simulate(three_jobs(), 0)
    with pytest.raises(UnknownNameError, match='did you mean "fifo"'):
        cotenant.simulate(three_jobs(), 2, "fiffo")
    with pytest.raises(InputError, match="no such file"):
        cotenant.load("nowhere.csv")
    with pytest.raises(UnknownNameError, match="steady"):
        cotenant.generate("stedy")


def test_an_empty_workload_is_a_valid_result() -> None:
    empty = three_jobs().with_frame(three_jobs().frame.head(0))
    result = cotenant.simulate(empty, 2)
    assert result.summary["jobs_submitted"] == 0
    assert result.summary["jct_s_mean"] is None
    assert result.jobs.height == 0


def test_an_interrupt_closes_the_log_and_is_passed_on(tmp_path: Path) -> None:
    class Impatient(Fifo):
        """Presses Ctrl-C at 50 s."""

        def decide(self, view: Any) -> Plan:
            if view.now >= 50.0:
                signal.raise_signal(signal.SIGINT)
            return super().decide(view)

    with pytest.raises(KeyboardInterrupt):
        cotenant.simulate(three_jobs(), 2, Impatient(), out=tmp_path / "o")
    result = cotenant.Result.open(tmp_path / "o")
    last = list(result.events())[-1]
    assert isinstance(last, Closed)
    assert last.interrupted
    assert (last.t, last.running, last.waiting) == (50.0, 2, 1)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_policy_does_not_silently_replace_the_first(tmp_path: Path) -> None:
    first = cotenant.simulate(three_jobs(), 2, "fifo", out=tmp_path / "o")
    with pytest.raises(ConfigError, match=r"o holds earlier runs \(fifo seed 0\)"):
        cotenant.simulate(three_jobs(), 2, "las", out=tmp_path / "o")
    assert first.summary["jobs_finished"] == 3
    again = cotenant.simulate(three_jobs(), 2, "fifo", out=tmp_path / "o")
    assert again.folder == first.folder
    cotenant.simulate(three_jobs(), 2, "las", out=tmp_path / "o", force=True)
    assert cotenant.Result.open(tmp_path / "o").policy == "las"
