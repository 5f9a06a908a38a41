"""Files that appear whole or not at all: a full disk, a kill, a link, the old file's mode."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cotenant.errors import ConfigError
from cotenant.profiles.wholefile import check_place, write_whole

CUT_AT = 4096
"""Bytes after which the system kills a writer."""

SAVE = {
    "interference": """
from cotenant.predictors.interference.modelfile import save_predictor
from cotenant.predictors.interference.predictor import AdaptiveInterferencePredictor
from cotenant.profiles.runs import CoRun, CoSide, JobConfig, SoloRun

jobs = [JobConfig(model=f"m{i}", family=f"m{i}", batch=16) for i in range(8)]
pairs = [(a, b) for a in jobs for b in jobs]
runs = [
    CoRun(row_id=f"r{i}", source="s", device_type="V100", sides=tuple(CoSide(job=j, speed=0.5) for j in pair))
    for i, pair in enumerate(pairs)
]
predictor = AdaptiveInterferencePredictor(zoo=("additive",)).fit(runs, [])
save = lambda path: save_predictor(predictor, path)
""",
    "works": """
from cotenant.predictors.resources.work import write_works, zoo_works

save = lambda path: write_works(path, zoo_works())
""",
    "resources": """
from cotenant.predictors.resources.modelfile import save_predictor
from cotenant.predictors.resources.observations import observed
from cotenant.predictors.resources.predictor import ResourcePredictor
from cotenant.predictors.resources.work import zoo_works
from cotenant.profiles.shipped import shipped_campaign, shipped_campaigns

runs = shipped_campaign(sorted(shipped_campaigns())[0])[1]
rows, _ = observed(runs, zoo_works())
predictor = ResourcePredictor(learners=("linear",)).fit(rows)
save = lambda path: save_predictor(predictor, path)
""",
}
KILLED = f"""
import resource, signal, sys
from pathlib import Path

path = Path(sys.argv[1])
save(path)
assert path.stat().st_size > 2 * {CUT_AT}, path.stat().st_size
path.write_text("old")
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, ({CUT_AT}, {CUT_AT}))
save(path)
"""


@pytest.mark.parametrize("what", sorted(SAVE))
def test_a_writer_killed_half_way_leaves_the_old_file(what: str, tmp_path: Path) -> None:
    path = tmp_path / "fit.json"
    done = subprocess.run(
        [sys.executable, "-c", SAVE[what] + KILLED, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGXFSZ, done.stderr
    assert path.read_text() == "old"


def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (CUT_AT, before[1]))
    try:
        with pytest.raises(OSError, match="large"):
            write_whole(path, b"x" * (2 * CUT_AT))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_links_stay_links_and_the_mode_stays(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_whole(link, b"new")
    assert link.is_symlink() and real.read_bytes() == b"new"
    assert real.stat().st_mode & 0o777 == 0o640
    assert sorted(tmp_path.iterdir()) == [link, real]


def test_what_is_no_regular_file_is_written_to_as_it_is(tmp_path: Path) -> None:
    write_whole("/dev/null", b"gone")
    assert not Path("/dev/null").is_file()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path, b"x")


def test_an_error_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write_whole(tmp_path / "gone" / "fit.json", b"x")
    assert caught.value.filename == str(tmp_path / "gone" / "fit.json")


def test_places_are_checked_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_place(tmp_path / "new.json")
    check_place("new.json")
    check_place("/dev/null")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match=r"there is no folder .*gone"):
        check_place(tmp_path / "gone" / "fit.json")
    with pytest.raises(ConfigError, match="is a folder"):
        check_place(tmp_path)
    # Modes do not hold root back, so the system's answer is given.
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(ConfigError, match="read-only"):
        check_place(tmp_path / "new.json")
