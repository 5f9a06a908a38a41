"""Every registered experiment keeps the contract of ``cotenant.experiments.base``."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from cotenant.errors import MissingDataError, UnknownNameError
from cotenant.experiments.base import Claim, Experiment, Measured, Place, Table
from cotenant.experiments.catalogue import EXPERIMENTS, find
from cotenant.experiments.cells import run_cells
from cotenant.experiments.pages import claims_frame, html_page, markdown_page
from cotenant.experiments.reproduce import check_folder, reproduce, result_json
from cotenant.experiments.standing import NO_REASON, combine, stand
from cotenant.experiments.words import difference, ours
from cotenant.runs.spec import build_policy, parse_policies

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_claim_has_a_source_and_a_method(name):
    experiment = find(name)
    assert experiment.name == name
    assert experiment.title and experiment.paper and experiment.source and experiment.reconstruction
    assert experiment.seeds >= 3
    keys = [claim.key for claim in experiment.claims]
    assert keys and len(keys) == len(set(keys))
    for claim in experiment.claims:
        assert claim.what and claim.paper and claim.source
        assert claim.how or claim.unmeasured
        if claim.low is not None and claim.high is not None:
            assert claim.low <= claim.high


def test_the_documented_results_leave_nothing_that_differs_without_a_reason():
    assert NO_REASON not in (ROOT / "docs" / "reproduction.md").read_text()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_policy_of_an_experiment_can_be_built(name):
    for text in find(name).policies.values():
        for spec in parse_policies([text]):
            assert callable(build_policy(spec).decide)


def _steady(experiment: Experiment, measured: Measured) -> str:
    """What must not differ from run to run."""
    timed = {claim.key for claim in experiment.claims if claim.volatile}
    values = {key: value for key, value in measured.values.items() if key not in timed}
    tables = [
        [{k: v for k, v in row.items() if k not in t.volatile} for row in t.rows] for t in measured.tables
    ]
    return json.dumps([values, tables, msgspec.to_builtins(measured.curves), measured.notes])


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_tiny_run_works_and_gives_the_same_twice(name, data_dir):
    experiment, place = find(name), Place(size="tiny", data=str(data_dir))
    one = experiment.measure(0, place)
    assert _steady(experiment, one) == _steady(experiment, find(name).measure(0, place))
    measurable = {claim.key for claim in experiment.claims if not claim.unmeasured}
    assert measurable <= set(one.values)
    numbers = [value for value in one.values.values() if value is not None]
    assert numbers and all(math.isfinite(value) for value in numbers)
    for table in one.tables:
        assert table.rows
        assert {tuple(row) for row in table.rows} == {tuple(table.rows[0])}
    more = {"gandiva": _of_gandiva, "horus": _by_utilisation, "tong": _by_utilisation}.get(name)
    if more is not None:
        more(experiment, one)


def _by_utilisation(experiment: Experiment, one: Measured) -> None:
    """Every claim has a value or says why it cannot be measured; all policies finish the same jobs."""
    for claim in experiment.claims:
        # On a dozen devices nobody waits in the middle of thirty jobs: no change against 0.
        if claim.unmeasured or claim.key.startswith("wait_median") or claim.key == "wait_ours_horus":
            continue
        assert one.values[claim.key] is not None, claim.key
    for table in one.tables:
        assert all(0.0 < row["utilisation_share"] <= 1.0 for row in table.rows)
        assert len({row["jobs_finished"] for row in table.rows}) == 1


def _of_gandiva(experiment: Experiment, one: Measured) -> None:
    """All that was scattered comes together, and what is packed is kept where it pays."""
    assert set(one.values) >= {claim.key for claim in experiment.claims}
    assert (one.values["united"], one.values["pack_right"]) == (100.0, 100.0)


def _claim(**changes):
    fields = {
        "key": "k",
        "what": "w",
        "paper": "p",
        "source": "s",
        "how": "h",
        "differs": "because",
        "unit": "%",
    }
    return Claim(**fields | changes)


@pytest.mark.parametrize(
    ("value", "claim", "verdict", "gap"),
    [
        (-25.0, _claim(low=-30.0, high=-20.0), "reproduced", 0.0),
        (-35.0, _claim(low=-30.0, high=-20.0, better="low"), "exceeded", -5.0),
        (-35.0, _claim(low=-30.0, high=-20.0), "differs", -5.0),
        (-15.0, _claim(low=-30.0, high=-20.0, better="low"), "differs", 5.0),
        (104.0, _claim(low=100.0, high=100.0, tolerance=0.05), "reproduced", 4.0),
        (94.0, _claim(low=100.0, high=100.0, tolerance=0.05, better="high"), "differs", -6.0),
        (7.0, _claim(), "measured", None),
        (500.0, _claim(low=300.0), "reproduced", 0.0),
        (7.0, _claim(unmeasured="no device"), "not measured", None),
        (None, _claim(low=1.0), "not measured", None),
    ],
)
def test_verdicts_by_hand(value, claim, verdict, gap):
    found = stand(claim, [Measured(values={"k": value})])
    assert (found.verdict, found.difference) == (verdict, gap)
    assert bool(found.reason) == (verdict != "reproduced")


def test_ours_is_mean_and_spread_over_the_seeds_that_have_a_value():
    found = stand(_claim(low=10.0, high=10.0), [Measured(values={"k": v}) for v in (9.0, None, 11.0)])
    assert found.values == [9.0, 11.0]
    assert ours(found) == "10.0 ± 1.41 %"  # standard deviation of 9 and 11 is the root of 2
    assert difference(found) == "none"


def test_a_difference_below_the_spread_says_so():
    """Means 9.5 and 6: half and four below 10; the root of 0.5 and of 2 is the spread."""
    near, far = (
        stand(_claim(low=10.0, high=10.0), [Measured(values={"k": v}) for v in row])
        for row in ((9.0, 10.0), (5.0, 7.0))
    )
    assert (near.verdict, difference(near)) == ("differs", "-0.50 points, less than the spread")
    assert (far.verdict, difference(far)) == ("differs", "-4.00 points")


def test_tables_of_several_seeds_become_one():
    tables = [
        Table(title="t", rows=[{"policy": "a", "x": 1.0}, {"policy": "b", "x": None}]),
        Table(title="t", rows=[{"policy": "b", "x": 5.0}, {"policy": "a", "x": 3.0}]),
    ]
    assert combine(tables) == [{"policy": "a", "x": (2.0, math.sqrt(2.0))}, {"policy": "b", "x": (5.0, 0.0)}]


class Needy(Experiment):
    """Needs what is not there."""

    name, title, paper, source, claims = "needy", "Needy", "p", "s", (_claim(),)

    def measure(self, seed, place):
        raise AssertionError(place.need("no such folder"))


def test_missing_data_is_told_and_ends_nothing(tmp_path):
    with pytest.raises(MissingDataError, match="COTENANT_DATA"):
        Place(data=str(tmp_path)).need("interference")
    done = reproduce([f"{__file__}:Needy"], Place(size="tiny", data=str(tmp_path)))
    assert "no such folder" in done[0].missing
    assert "Not run: " in markdown_page(done, "c", "tiny")


def test_unknown_experiments_get_the_list():
    with pytest.raises(UnknownNameError, match='did you mean "gaiagpu"'):
        find("gaiagp")


def test_pages_hold_every_claim_and_load_nothing():
    done = reproduce(["harmony", "gaiagpu"], Place(size="tiny"), seeds=1)
    page, text, frame = html_page(done, "c", "tiny"), markdown_page(done, "c", "tiny"), claims_frame(done)
    claims = [s.claim.what for one in done for s in one.standings]
    assert frame["what"].to_list() == claims
    assert all(what in text for what in claims)
    # Of harmony's two claims one has a number, of gaiagpu's eight four.
    assert "5 more have no published number." in text and "5 more have no published number." in page
    overview = text[: text.index("## gaiagpu")].count("| gaiagpu: ") + text.count("| harmony: ")
    assert overview == 5
    assert 'src="http' not in page and "default-src 'none'" in page
    assert page.count('class="chart"') == 4  # gaiagpu's curves
    found = result_json(done, Place(size="tiny"), "c")
    assert [e["name"] for e in found["experiments"]] == ["harmony", "gaiagpu"]


@pytest.mark.parametrize("workers", [1, 2])
def test_cells_give_the_same_with_one_process_or_two(workers):
    found: dict[int, str] = {}
    run_cells(hex, [1, 2, 30], workers, found.__setitem__)
    assert found == {1: "0x1", 2: "0x2", 30: "0x1e"}


def test_a_folder_with_other_things_is_refused(tmp_path):
    from cotenant.errors import InputError

    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match="other things"):
        check_folder(tmp_path, "reproduction.json", "k", force=False)
    check_folder(tmp_path, "reproduction.json", "k", force=True)
    (tmp_path / "reproduction.json").write_text('{"kind": "k"}')
    check_folder(tmp_path, "reproduction.json", "k", force=False)


def test_the_command_writes_page_tables_and_json(tmp_path):
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-m", "cotenant", "reproduce", "harmony", "--seeds", "1", "--quick", "--workers", "1",
         "--json", "-o", str(out)],
        check=False, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["command"] == "cotenant reproduce harmony --seeds 1 --quick"
    assert json.loads((out / "reproduction.json").read_text()) == found
    assert "1 experiment · cotenant reproduce harmony" in (out / "reproduction.html").read_text()
    assert {p.name for p in out.iterdir()} == {
        "reproduction.html", "reproduction.json", "reproduction.md", "claims.csv",
    }  # fmt: skip
