"""Errors in policies: whose they are, where, and what the Python API and the command line say."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import cotenant
from cotenant.checks import check_policy
from cotenant.errors import ConfigError, CotenantError, PolicyError
from cotenant.model.cluster import Cluster
from cotenant.policies.colocate import Colocate
from cotenant.policies.fifo import Fifo
from cotenant.runs.blame import place_of
from cotenant.runs.config import settings_of
from cotenant.runs.spec import build_policy, parse_policy, policy_object


def two_jobs() -> cotenant.Workload:
    return cotenant.Workload(
        pl.DataFrame({"name": ["a", "b"], "submit_s": [0.0, 5.0], "duration_s": [10.0, 10.0], "gpus": [1, 1]})
    )


class Broken(Fifo):
    """Raises."""

    def decide(self, view: Any) -> Any:
        return self._helper({})

    def _helper(self, table: dict[str, int]) -> int:
        return table["oops"]


LINE = inspect.getsourcelines(Broken._helper)[1] + 1


def test_the_error_of_a_policy_is_chained_and_its_line_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent.parent)
    with pytest.raises(PolicyError) as caught:
        cotenant.simulate(two_jobs(), 2, Broken())
    assert isinstance(caught.value.__cause__, KeyError)
    assert (
        str(caught.value) == f"policy Broken raised KeyError: 'oops' (runs/test_blame.py:{LINE}, in _helper)"
    )


def test_a_file_elsewhere_is_named_without_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PolicyError, match=rf"'oops' \(test_blame.py:{LINE}, in _helper\)"):
        cotenant.simulate(two_jobs(), 2, Broken())


def test_an_error_in_a_library_that_the_policy_calls_is_placed_in_the_policy() -> None:
    class Deep:
        """Calls something that raises."""

        def decide(me, view: Any) -> Any:  # noqa: N805 - the name of self is the author's affair
            return textwrap.dedent(3)  # type: ignore[arg-type]

    with pytest.raises(PolicyError, match=rf"policy Deep raised .*{Path(__file__).name}:\d+, in decide"):
        cotenant.simulate(two_jobs(), 2, Deep())


def test_an_error_of_ours_raised_inside_a_policy_names_the_line_too() -> None:
    class Strict(Fifo):
        """Refuses."""

        def decide(self, view: Any) -> Any:
            raise ConfigError("not today")

    with pytest.raises(PolicyError, match=r"not today \(.*test_blame.py:\d+, in decide\)"):
        cotenant.simulate(two_jobs(), 2, Strict())


def test_a_wrong_answer_is_shown_in_the_words_of_the_engine() -> None:
    class Silent:
        """Returns nothing."""

        def decide(self, view: Any) -> None:
            return None

    with pytest.raises(PolicyError) as caught:
        cotenant.simulate(two_jobs(), 2, Silent())  # type: ignore[arg-type]
    assert (
        str(caught.value)
        == str(caught.value.__cause__)
        == "Silent.decide() must return a Plan, found NoneType"
    )


def test_an_error_elsewhere_is_not_laid_at_the_policys_door(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("broken fold")

    monkeypatch.setattr("cotenant.report.fold.MetricFold.result", fail)
    with pytest.raises(CotenantError, match="fault of cotenant: RuntimeError: broken fold") as caught:
        cotenant.simulate(two_jobs(), 2)
    assert not isinstance(caught.value, PolicyError)
    assert place_of(Fifo(), caught.value) == ""


def test_a_policy_that_needs_a_forecast_is_told_how_to_give_one() -> None:
    with pytest.raises(PolicyError, match=r"policy Colocate asks for a forecast .*forecast=None.*\"lookup\""):
        cotenant.simulate(two_jobs(), 2, Colocate(), forecast=None)


class Needy(cotenant.Params):
    """Cannot do without a number."""

    def __init__(self, *, depth: int) -> None:
        self.depth = depth

    def decide(self, view: Any) -> Any:
        return cotenant.Plan()


class Forgetful(cotenant.Params):
    """Stores its parameter under another name."""

    def __init__(self, *, depth: int = 1) -> None:
        self.d = depth

    def decide(self, view: Any) -> Any:
        return cotenant.Plan()


class NoView:
    """Takes no view."""

    def decide(self) -> Any:
        return cotenant.Plan()


def test_a_class_that_needs_nothing_is_made_into_a_policy() -> None:
    assert cotenant.simulate(two_jobs(), 2, Fifo).summary["jobs_finished"] == 2
    assert isinstance(policy_object(Fifo), Fifo)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3, r"a policy is a name, a specification .* or an object with decide\(view\), found 3"),
        (dict, "found class dict"),
        (None, "found None"),
        (Needy, r"policy Needy is a class that needs depth; give an object, Needy\(\.\.\.\)"),
        (Forgetful(), "Forgetful does not store its parameter depth: store it under its own name"),
        (Forgetful, "store it under its own name, self.depth = depth"),
        (NoView(), r"decide must take the view and nothing else: def decide\(self, view\)"),
        (NoView, "decide must take the view"),
    ],
)
def test_what_is_no_policy_is_refused_before_anything_runs(given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        cotenant.simulate(two_jobs(), 2, given)


@pytest.mark.parametrize("seed", [-1, 1.5, "1", True, None])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(ConfigError, match="seed must be a whole number, 0 or more, found"):
        cotenant.simulate(two_jobs(), 2, seed=seed)


def test_settings_may_be_a_mapping_and_are_checked_strictly() -> None:
    late = cotenant.simulate(two_jobs(), 2, settings={"round_s": 60})
    # The first decision falls at 0, the second at 60: b, submitted at 5, runs from 60 to 70.
    assert late.summary["makespan_s"] == 70.0
    for wrong, words in (
        ({"round": 60}, 'no setting "round"; did you mean "round_s"'),
        ({"round_s": "60"}, "Expected `float`, got `str`"),
        ({"round_s": -1.0}, "round_s must be zero or more"),
    ):
        with pytest.raises(ConfigError, match=words):
            settings_of(wrong)
    with pytest.raises(ConfigError, match="settings are a Settings or a mapping"):
        cotenant.simulate(two_jobs(), 2, settings=[("round_s", 60)])  # type: ignore[arg-type]


def test_a_type_by_name_says_who_looks_names_up() -> None:
    with pytest.raises(ConfigError, match=r"DeviceType, found 'V100'.*catalogue.device_type"):
        Cluster.uniform(64, gpu_type="V100")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="gpus must be a whole number, found '64'"):
        Cluster.uniform("64")  # type: ignore[arg-type]


def test_the_contract_checks_say_what_they_take() -> None:
    with pytest.raises(ConfigError, match="check_policy takes a class, or a function that makes a policy"):
        check_policy(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Forgetful does not store its parameter depth"):
        check_policy(Forgetful)


def test_a_policy_that_raises_when_it_is_made_is_no_fault_of_ours(tmp_path: Path) -> None:
    file = tmp_path / "bugs.py"
    file.write_text(
        "class Early:\n    def __init__(self, *, n: int = 1) -> None:\n        self.n = 1 // (n - 1)\n\n"
        "    def decide(self, view):\n        return None\n\n\nclass NoDecide:\n    pass\n"
    )
    with pytest.raises(
        ConfigError, match=r"raised ZeroDivisionError when it was made.*bugs.py:3, in __init__"
    ):
        build_policy(parse_policy(f"{file}:Early"))
    with pytest.raises(ConfigError, match=r"NoDecide\" has no decide\(view\): it needs a class"):
        build_policy(parse_policy(f"{file}:NoDecide"))
