"""Three scripts of different style, before and after they were moved over: the guide's own."""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cotenant.elastic.checks import check_script

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "elastic"
GUIDE = (ROOT / "docs" / "elastic-check.md").read_text()


class Example(NamedTuple):
    before: str
    after: str
    found: list[tuple[str, str]]
    arguments: list[str]
    environment: dict[str, str]
    lines: int


EXAMPLES = [
    Example(
        "images_ddp.py",
        "images_elastic.py",
        [
            ("process-group", "D1"),
            ("distributed-sampler", "D1"),
            ("wrapper", "D1"),
            ("depends-on-processes", "D1"),
            ("collective", "D1"),
            ("own-checkpoint", ""),
            ("collective", "D1"),
        ],
        ["--samples", "160", "--epochs", "2"],
        {},
        2,
    ),
    Example(
        "characters_accumulate.py",
        "characters_elastic.py",
        [
            ("process-group", "D1"),
            ("depends-on-processes", "D1"),
            ("seed", "D1"),
            ("set-order", "D0"),
            ("wrapper", "D1"),
        ],
        [],
        {"STEPS": "10"},
        1,
    ),
    Example(
        "films_trainer.py",
        "films_elastic.py",
        [
            ("hash", "D0"),
            ("own-generator", "D1"),
            ("cudnn-benchmark", "D0"),
            ("no-seed", "D0"),
            ("wall-clock", "D0"),
        ],
        ["--samples", "320", "--epochs", "2"],
        {},
        2,
    ),
]
each = pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.after.partition("_")[0])


@each
def test_before_it_is_moved_the_check_finds_what_stops_it_and_nothing_after(example: Example) -> None:
    before, after = check_script(FOLDER / example.before), check_script(FOLDER / example.after)
    assert [(one.rule, one.stops) for one in before.findings] == example.found
    assert (before.left, before.moved, before.trains) == ("changed", False, True)
    assert list(after.findings) == [] and after.accepted == 0
    assert (after.left, after.moved, after.trains) == ("bitwise", True, True)


@each
def test_the_guide_shows_what_is_found_and_what_was_changed(example: Example) -> None:
    for one in check_script(FOLDER / example.before).findings:
        assert (
            f"{one.file.relative_to(ROOT)}:{one.line}:{one.column}: {one.grade()}: {one.what}  [{one.rule}]\n"
            in GUIDE
        )
    assert f"```diff\n{changes(example)}```" in GUIDE


def changes(example: Example) -> str:
    """The difference from the first import on."""
    texts = [
        (FOLDER / name).read_text().split('"""\n', 1)[1].split("\n")
        for name in (example.before, example.after)
    ]
    lines = list(difflib.unified_diff(*texts, lineterm="", n=0))[2:]
    return "".join(f"{line}\n" for line in lines if not line.startswith("@@"))


def _starter(play: Any, example: Example) -> Any:
    forked = type(play).alone.__globals__["Forked"]

    def start(options: dict[str, Any], more: Mapping[str, str]) -> Any:
        return forked({"script": "checked.py"} | options, example.environment | dict(more))

    return start


@each
def test_moved_over_it_is_equal_on_one_two_and_three_processes(
    example: Example, tmp_path: Path, play: Any
) -> None:
    from cotenant.elastic.checks.equal import Trial, run_equal

    start = _starter(play, example)

    def watched(words: Sequence[str], more: Mapping[str, str], output: Path) -> Any:
        return start({"words": list(words), "output": str(output)}, more)

    trial = Trial(FOLDER / example.after, example.arguments, 4, limit_s=300.0)
    found = run_equal(trial, start=watched)
    workers = 2 if example.after.startswith("images") else 4
    assert found.processes == [count for count in (1, 2, 3) if count <= workers]
    assert (found.difference, found.steps, found.findings) == (None, 4, [])


@each
def test_grown_from_one_to_two_processes_in_the_middle_it_is_the_same(
    example: Example, tmp_path: Path, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cotenant.elastic.diff import compare
    from cotenant.elastic.digests import FOLDER as DIGESTS
    from cotenant.elastic.logs import read
    from cotenant.elastic.supervisor import Supervisor

    start = _starter(play, example)
    argv = [str(FOLDER / example.after), *example.arguments]
    (tmp_path / "alone").mkdir()
    (tmp_path / "grown").mkdir()
    alone = start(
        {"argv": argv, "output": str(tmp_path / "alone" / "output")},
        {DIGESTS: str(tmp_path / "alone"), "OMP_NUM_THREADS": "1"},
    )
    assert alone.wait(300) == 0, (tmp_path / "alone" / "output").read_text()

    def begin(more: Mapping[str, str]) -> Any:
        folder = tmp_path / "grown"
        options = {"argv": argv, "output": str(folder / "output"), "hold": str(folder / "grown")}
        return start(options, {DIGESTS: str(folder), "OMP_NUM_THREADS": "1", **more})

    supervisor = Supervisor([], 1, 2, start=begin)
    supervisor.want(1)
    deadline = time.monotonic() + 300
    try:
        while supervisor.poll() is None:
            assert time.monotonic() < deadline
            if supervisor.members and supervisor.generation == 1:
                supervisor.want(2)
            elif supervisor.generation > 1:
                (tmp_path / "grown" / "grown").touch()
            time.sleep(0.02)
        assert supervisor.poll() == 0, (tmp_path / "grown" / "output").read_text()
    finally:
        supervisor.close()
    one, other = read(tmp_path / "alone"), read(tmp_path / "grown")
    assert compare(one, other) is None and other.contradictions == []
    assert one.steps == other.steps
    printed = [(tmp_path / name / "output").read_text() for name in ("alone", "grown")]
    assert printed[0] == printed[1] and printed[0].count("loss") == example.lines
    sizes = {line for path in (tmp_path / "grown").glob("*.jsonl") for line in _sizes(path)}
    assert sizes == {1, 2}


def _sizes(path: Path) -> list[int]:
    import json

    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [record["size"] for record in records if record["kind"] == "run"]


@pytest.mark.parametrize("example", EXAMPLES[1:], ids=lambda one: one.before)
def test_before_it_is_moved_it_runs(example: Example, tmp_path: Path, play: Any) -> None:
    output = tmp_path / "output"
    alone = _starter(play, example)(
        {"argv": [str(FOLDER / example.before), *example.arguments], "output": str(output)}, {}
    )
    assert alone.wait(300) == 0, output.read_text()
    assert output.read_text().count("loss") == example.lines
