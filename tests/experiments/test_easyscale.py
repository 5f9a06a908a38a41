"""EasyScale's experiment: times of mini-batches, the workload read and drawn, the baseline; numbers by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from cotenant.errors import InputError
from cotenant.experiments.base import Place
from cotenant.experiments.easyscale import ARTIFACT, EasyScale
from cotenant.experiments.elasticjobs import Elastic, as_workload, drawn, read
from cotenant.experiments.minibatches import JOBS, TYPES, Speeds, mini_batch_s
from cotenant.experiments.single import OneAtATime
from cotenant.model import events as ev
from cotenant.testing import Harness

HEADER = "name,time,application,max_parallelism,batch_size,epochs,enable_heterogeneous_deterministic,preferred_gpu,\n"


def test_mini_batches_at_other_sizes_lie_on_a_line() -> None:
    # BERT on V100: 0.4406 s with 8, 0.6511 s with 16, so half of the difference less with 4.
    assert mini_batch_s("bert", 4, "V100", neutral=False, sync=0.0) == pytest.approx(0.33535)
    # On P100 in the proportion measured at 8: 0.6007 / 0.4406.
    assert mini_batch_s("bert", 4, "P100", neutral=False, sync=0.0) == pytest.approx(
        0.33535 * 0.6007 / 0.4406
    )
    # With all of the synchronisation, 0.1782 s more.
    assert mini_batch_s("bert", 4, "V100", neutral=False, sync=1.0) == pytest.approx(0.51355)


def test_every_time_is_positive_and_the_old_types_are_slower() -> None:
    for name, batches in (("yolov3", (2, 4, 8)), ("resnet50", (32, 64, 128)), ("swintransformer", (16, 32))):
        for batch in batches:
            times = [mini_batch_s(name, batch, kind, neutral=False, sync=0.0) for kind in TYPES]
            assert 0.0 < times[0] < times[1] < times[2]


def test_speeds_are_relative_to_v100() -> None:
    speeds = Speeds(sync=0.0)
    assert speeds.solo_speed("vgg19/b32/D1", "V100") == 1.0
    assert speeds.solo_speed("vgg19/b32/D1", "T4") == pytest.approx(0.3924 / 0.9439)
    assert speeds.solo_speed("vgg19/b32/D2", "T4") == pytest.approx(1.1327 / 2.2755)


def test_the_drawn_workload_has_the_artifacts_counts() -> None:
    jobs = drawn(3)
    assert len(jobs) == 62
    assert Counter(j.workers for j in jobs) == {32: 33, 16: 17, 8: 11, 4: 1}
    assert Counter(j.preferred for j in jobs) == {"V100": 48, "P100": 11, "T4": 3}
    assert sum(j.neutral for j in jobs) == 36
    epochs: Counter[str] = Counter()
    for job in jobs:
        epochs[job.application] += job.epochs  # type: ignore[assignment]
    assert epochs["bert"] == pytest.approx(466)
    assert epochs["electra"] == pytest.approx(686)
    assert all(115.0 <= j.submit_s <= 4814.0 for j in jobs)
    assert drawn(3) == jobs != drawn(4)


def test_rows_of_one_name_are_one_job(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text(
        HEADER
        + "a,100,bert,16,8,4,40,v100,0.4\nb,110,resnet50,8,64,2,0,t4,0.2\na,200,bert,32,16,5,1,p100,0.4\n"
    )
    assert read(tmp_path) == [
        Elastic("a", 200.0, "bert", 32, 16, 5.0, True, "P100"),
        Elastic("b", 110.0, "resnet50", 8, 64, 2.0, False, "T4"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "does not hold simulator/workloads/test.csv"),
        (HEADER + "a,100,gpt,16,8,4,40,v100,0.4\n", "line 2: not a row"),
        (HEADER + "a,soon,bert,16,8,4,40,v100,0.4\n", "line 2: not a row"),
        ("x,y\n1,2\n", "line 2: not a row"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "test.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read(tmp_path)


def test_lengths_and_grades_by_hand() -> None:
    # Two epochs of 12,800 samples, 8 workers of 64: 50 mini-batches each, of 0.2688 + half of 0.3638 s.
    jobs = [
        Elastic("a", 5.0, "resnet50", 8, 64, 2.0, False, "T4"),
        Elastic("b", 1.0, "bert", 4, 8, 1.0, True, "V100"),
    ]
    frame = as_workload(jobs, pinned=False, sync=0.5).frame
    assert frame["name"].to_list() == ["b", "a"]
    row = frame.row(1, named=True)
    assert row["duration_s"] == pytest.approx(50 * 0.4507)
    assert (row["determinism"], row["device_types"], row["min_gpus"], row["max_gpus"]) == ("D1", ["T4"], 1, 8)
    assert frame.row(0, named=True)["device_types"] == []
    assert as_workload(jobs, pinned=True).frame["device_types"].to_list() == [["V100"], ["T4"]]


def test_one_at_a_time() -> None:
    h = Harness("1x4", OneAtATime())
    for name in "abc":
        h.submit(name, runs_s=10.0)
    run = h.run()
    assert [run.start_s(n) for n in "abc"] == [0.0, 10.0, 20.0]
    assert [e.why.rule for e in run.events if isinstance(e, ev.Started)] == ["one-at-a-time"] * 3


def test_the_artifacts_workload_is_run_where_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One job of two workers, submitted at 100 s, starts in the round at 120 s. 2 x 50 mini-batches: 50 times one of them
    # after the 20 s of its start, on both devices at once.
    (tmp_path / "test.csv").write_text(HEADER + "a,100,resnet50,2,256,2,0,v100,0.4\n")
    monkeypatch.setenv(ARTIFACT, str(tmp_path))
    found = EasyScale().measure(0, Place(size="tiny"))
    each = mini_batch_s("resnet50", 256, "V100", neutral=False)
    assert JOBS["resnet50"].samples * 2 / 512 == 50
    assert found.values["yarn_jct"] == pytest.approx(20.0 + 20.0 + 50 * each)
    assert found.values["yarn_makespan"] == pytest.approx(140.0 + 50 * each)
    # Elastic, it does 40 s of work at half speed on one device, restarts on two at 180 s, and has 20 s less to do.
    assert found.values["homo_jct"] == pytest.approx(80.0 + 20.0 + 50 * each - 20.0)
    assert "artifact's, 1 jobs" in found.notes[0]
