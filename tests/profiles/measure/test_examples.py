"""The example files can be used as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.profiles.measure.jobsfile import read_jobs
from cotenant.profiles.measure.schedule import all_sets

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples").glob("measure_*.toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_is_read_and_holds_pairs_and_triples(path: Path) -> None:
    file = read_jobs(path)
    sizes = [len(jobs) for jobs in all_sets(file)]
    assert sizes.count(3) == 6
    assert sizes.count(2) >= 50
    assert len({job.config.group for job in file.jobs}) >= 7


def test_there_are_examples() -> None:
    assert [path.stem for path in EXAMPLES] == ["measure_cpu", "measure_cuda"]
