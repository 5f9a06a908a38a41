"""Tables of measured pairs: what is used, what is refused, how they are split."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.errors import ConfigError, TraceError
from cotenant.profiles.catalogue import device_type
from cotenant.profiles.kinds import find_kind
from cotenant.profiles.runs import CoRun, CoSide, JobConfig
from cotenant.profiles.runsfile import write_co_runs
from cotenant.profiles.table import CoRunTable, PairRow

HEADER = "device_type,a,b,a_speed,b_speed,source\n"


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "pairs.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_own_measurements_are_read_under_canonical_names(tmp_path: Path) -> None:
    table = CoRunTable.load(_write(tmp_path, HEADER + "v100-16gb,LM (batch size 5),own net,0.8,0.5,lab\n"))
    assert table.lookup("LM/b5", "own net", "V100") == 0.8
    assert table.lookup("own net", "LM/b5", "V100") == 0.5
    assert table.lookup("own net", "own net", "V100") is None
    assert table.campaigns == ("lab",)


def test_a_table_that_measure_writes_is_used_whatever_its_campaign(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    jobs = [JobConfig(model=name, family=name, batch=8) for name in ("one", "two")]
    sides = (CoSide(job=jobs[0], speed=0.6), CoSide(job=jobs[1], speed=0.7))
    write_co_runs(path, [CoRun(row_id="1", source="our-lab", device_type="V100", sides=sides)])
    table = CoRunTable.load(path)
    assert table.campaigns == ("our-lab",) and table.lookup("two/b8", "one/b8", "V100") == 0.7
    with pytest.raises(ConfigError, match="no usable measurement"):
        CoRunTable.load(path, campaigns=("another",))


def test_beside_a_published_campaign_others_have_to_be_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    job = JobConfig(model="one", family="one")
    sides = (CoSide(job=job, speed=0.6), CoSide(job=job, speed=0.6))
    runs = [CoRun(row_id=s, source=s, device_type="V100", sides=sides) for s in ("gavel-2020", "our-lab")]
    write_co_runs(path, runs)
    assert CoRunTable.load(path).campaigns == ("gavel-2020",)
    assert CoRunTable.load(path, campaigns=("our-lab",)).campaigns == ("our-lab",)


def test_a_folder_stands_for_the_pairs_in_it(tmp_path: Path) -> None:
    _write(tmp_path, HEADER + "V100,x,y,0.8,0.4,one\n")
    assert CoRunTable.load(tmp_path).lookup("x", "y", "V100") == 0.8


def test_repeats_of_one_campaign_are_averaged_and_campaigns_are_not(tmp_path: Path) -> None:
    text = HEADER + "V100,x,y,0.8,0.4,one\nV100,y,x,0.5,0.6,one\nV100,x,y,0.1,0.1,two\n"
    path = _write(tmp_path, text)
    # x beside y: 0.8 and 0.6 in campaign one.
    assert CoRunTable.load(path).lookup("x", "y", "V100") == pytest.approx(0.7)
    assert CoRunTable.load(path, campaigns=("two", "one")).lookup("x", "y", "V100") == 0.1
    assert CoRunTable.load(path).only("two").lookup("x", "y", "V100") == 0.1


def test_a_pair_of_equals_is_the_mean_of_its_sides(tmp_path: Path) -> None:
    table = CoRunTable.load(_write(tmp_path, HEADER + "V100,x,x,0.6,0.5,one\n"))
    assert table.lookup("x", "x", "V100") == pytest.approx(0.55)


def test_speeds_just_above_one_are_one_and_implausible_ones_are_not_used(tmp_path: Path) -> None:
    table = CoRunTable.load(_write(tmp_path, HEADER + "V100,x,y,1.04,1.3,one\n"))
    assert table.lookup("x", "y", "V100") == 1.0
    assert table.lookup("y", "x", "V100") is None
    assert table.sides_read == {
        "used": 1,
        "unused: faster than alone by over 5%, so the solo run was measured too slow": 1,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            HEADER + "V100,x,y,fast,0.5,one\n",
            r"pairs\.csv:2 \[a_speed\]: speed 'fast' is not a positive number",
        ),
        (HEADER + "V100,x,y,0.5,0.5,one\nV100,x,z,0.5,-1,one\n", r"pairs\.csv:3 \[b_speed\]: speed '-1'"),
        (HEADER + "V100,x,y,0.5,nan,one\n", r"\[b_speed\]: speed 'nan'"),
        (HEADER + ",x,y,0.5,0.5,one\n", r"pairs\.csv:2 \[device_type\]: is empty"),
        (HEADER + "V100,x\n", r"pairs\.csv:2 \[b\]: is empty"),
    ],
)
def test_a_bad_cell_is_named_with_file_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        CoRunTable.load(_write(tmp_path, text))


def test_files_of_another_kind_are_refused_with_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"columns a_speed, b_speed are missing \(found: device_type, a, b\)"
    ):
        CoRunTable.load(_write(tmp_path, "device_type,a,b\n"))
    with pytest.raises(ConfigError, match="no such file"):
        CoRunTable.load(tmp_path / "absent.csv")
    with pytest.raises(ConfigError, match="holds no usable measurement"):
        CoRunTable.load(_write(tmp_path, HEADER + "V100,x,y,,,one\n"))


@st.composite
def _tables(draw: st.DrawFn) -> CoRunTable:
    names = st.sampled_from("abcdefgh")
    rows = draw(st.lists(st.tuples(st.sampled_from(["K80", "V100"]), names, names), min_size=30, max_size=60))
    return CoRunTable([PairRow("c", device, a, b, 0.5, 0.6) for device, a, b in rows])


@settings(max_examples=60, deadline=None)
@given(_tables(), st.integers(0, 1000))
def test_halves_share_no_pair_on_any_device_and_lose_none(table: CoRunTable, seed: int) -> None:
    try:
        fit, truth = table.split(seed)
    except ConfigError as error:
        assert "too few pairs" in str(error)
        return
    ours, theirs = ({row.pair for row in half.rows} for half in (fit, truth))
    assert not ours & theirs
    assert len(fit) + len(truth) == len(table)
    again, _ = table.split(seed)
    assert again.rows == fit.rows


def test_bad_splits_are_refused() -> None:
    table = CoRunTable([PairRow("c", "K80", "a", "b", 0.5, 0.5)])
    with pytest.raises(ConfigError, match="too few pairs to split"):
        table.split(0)
    with pytest.raises(ConfigError, match=r"must lie in \(0, 1\), found 1\.5"):
        table.split(0, 1.5)
    with pytest.raises(ConfigError, match='no campaign "d"; it has: c'):
        table.only("d")
    with pytest.raises(ConfigError, match="cannot be both"):
        table.by_campaign("c", "c")


@pytest.mark.data
def test_every_side_of_the_published_collection_is_accounted_for(data_dir: Path) -> None:
    table = CoRunTable.load(data_dir / "interference" / "pairs.csv")
    # 3,780 rows, two sides each. Rows of other campaigns: 914; of jobs on several devices: 1,887.
    assert table.sides_read == {
        "used": 1439,
        "unused: campaign not asked for": 2 * 914,
        "unused: jobs on several devices": 2 * 1887,
        "unused: status failed": 224,
        "unused: solo speed disputed": 249,
        "unused: faster than alone by over 5%, so the solo run was measured too slow": 46,
    }
    assert sum(table.sides_read.values()) == 2 * 3780
    assert table.campaigns == ("gavel-2020", "gavel-2019-08", "blox-2023-12")
    assert table.device_types == ("A100", "K80", "P100", "V100")


@pytest.mark.data
def test_halves_of_the_published_collection_share_no_pair(data_dir: Path) -> None:
    table = CoRunTable.load(data_dir / "interference" / "pairs.csv").one_campaign_each()
    assert table.campaigns == ("gavel-2020", "gavel-2019-08", "blox-2023-12")
    assert {row.campaign for row in table.rows} == {"gavel-2020", "blox-2023-12"}
    fit, truth = table.split(0)
    assert not {row.pair for row in fit.rows} & {row.pair for row in truth.rows}
    assert all(truth.lookup(s.model, s.other, s.device_type) is None for s in fit.sides())


@pytest.mark.data
def test_memory_of_kinds_agrees_with_which_pairs_ran(data_dir: Path) -> None:
    """Pairs that died are infeasible by memory, pairs that ran feasible, in at least 19 cases of 20."""
    table = CoRunTable.load(data_dir / "interference" / "pairs.csv").only("gavel-2020", "gavel-2019-08")
    judged = right = 0
    for row in table.rows:
        kinds = find_kind(row.a), find_kind(row.b)
        if None in kinds or "ResNet-50/b256" in row.pair:
            continue
        need = sum(kind.memory_bytes for kind in kinds if kind is not None)
        judged += 1
        right += (need > device_type(row.device_type).memory_bytes) == row.failed
    assert judged > 700
    assert right / judged > 0.95
