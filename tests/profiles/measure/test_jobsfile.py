"""The file of jobs: what it may say, and how it is refused."""

from __future__ import annotations

import pytest

from cotenant.errors import ConfigError, CotenantError
from cotenant.profiles.measure.jobsfile import override, parse_jobs
from cotenant.profiles.measure.schedule import all_sets
from cotenant.profiles.runs import JobConfig

THREE = """
[measure]
device = "cpu:0"
{settings}
[[job]]
name = "c"
builtin = "convolution"
batch = 8
[[job]]
name = "a"
builtin = "memory"
scale = 2
[[job]]
name = "b"
command = ["python", "train.py"]
model = "MyNet"
batch = 4
"""


def test_jobs_are_named_for_tables() -> None:
    file = parse_jobs(THREE.format(settings=""))
    assert [job.config for job in file.jobs] == [
        JobConfig(model="convolution", family="residual", dataset="images 3x32x32", batch=8, amp=0),
        JobConfig(model="memory-x2", family="wide", dataset="vectors 1024", batch=2, amp=0),
        JobConfig(model="MyNet", batch=4),
    ]
    assert file.settings.seconds("budget") == 600.0


def test_all_pairs_and_chosen_or_drawn_triples() -> None:
    sets = all_sets(parse_jobs(THREE.format(settings="triples = 1")))
    assert len(sets) == 3 + 3 + 1
    assert ("a", "a") in sets
    assert ("a", "b", "c") in sets
    assert all(list(jobs) == sorted(jobs) for jobs in sets)
    chosen = 'pairs = [["c", "a"], ["a", "c"]]\ntriples = [["c", "c", "a"]]'
    assert all_sets(parse_jobs(THREE.format(settings=chosen))) == [("a", "c"), ("a", "c", "c")]
    none = all_sets(parse_jobs(THREE.format(settings='pairs = "none"')))
    assert none == []
    without = all_sets(parse_jobs(THREE.format(settings="self_pairs = false")))
    assert len(without) == 3


def test_drawn_triples_depend_on_the_seed_alone() -> None:
    many = "[measure]\ntriples = 5\nseed = {seed}\n" + "".join(
        f'[[job]]\nname = "j{i}"\ncommand = ["x"]\n' for i in range(8)
    )
    one, again, other = (all_sets(parse_jobs(many.format(seed=s))) for s in (1, 1, 2))
    assert one == again
    assert one != other


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[measure", "is no TOML"),
        ("[measures]", 'no table "measures"'),
        ("[measure]", r"holds no \[\[job\]\]"),
        ("[measure]\nwindows = 3\n[[job]]\nname='a'\ncommand=['x']", "windows"),
        ("[[job]]\nname='a'", "either builtin"),
        ("[[job]]\nname='a'\nbuiltin='memory'\ncommand=['x']", "either builtin"),
        ("[[job]]\nname='a'\nbuiltin='memoryy'", 'did you mean "memory"'),
        ("[[job]]\nname='a/b'\ncommand=['x']", "a name is made of"),
        ("[[job]]\nname='a'\ncommand=['x']\nwait_ms=1.0", "put them into the command"),
        ("[[job]]\nname='a'\ncommand=['x']\n[[job]]\nname='a'\ncommand=['y']", "two jobs are named"),
        ("[[job]]\nname='a'\nbuiltin='memory'\n[[job]]\nname='b'\nbuiltin='memory'", "both be memory/b2"),
        ("[measure]\npairs=[['a','z']]\n[[job]]\nname='a'\ncommand=['x']", "no job 'z'; known: a"),
        ("[measure]\nmin_steps=2\n[[job]]\nname='a'\ncommand=['x']", "min_steps >= 3"),
        ("[measure]\nlongest_window='1s'\n[[job]]\nname='a'\ncommand=['x']", "shorter than window"),
        (
            "[measure]\nbudget='0s'\n[[job]]\nname='a'\ncommand=['x']",
            'jobs .measure.: budget = "0s" must be positive; write a duration such as "90s"',
        ),
        (
            "[measure]\nbudget='ten'\n[[job]]\nname='a'\ncommand=['x']",
            'jobs .measure.: budget = "ten" is no duration',
        ),
        ("[measure]\nwarmup='-1s'\n[[job]]\nname='a'\ncommand=['x']", 'warmup = "-1s" is no duration'),
        (
            "[[job]]\nname='a'\nbuiltin='memory'\nbatch=0",
            "job 'a': batch = 0; give at least 1, or leave it out",
        ),
        ("[[job]]\nname='a'\ncommand=['x']\nbatch=0", "batch = 0; give at least 1"),
        ("[[job]]\nname='a'\ncommand=['x']\nmemory_limit='much'", "jobs job 'a': memory_limit: "),
    ],
)
def test_what_is_refused_and_in_which_words(text: str, words: str) -> None:
    with pytest.raises(CotenantError, match=words):
        parse_jobs(text)


def test_the_command_line_goes_before_the_file() -> None:
    file = override(parse_jobs(THREE.format(settings="")), device="cpu:1", budget="30s", seed=4)
    assert (file.settings.device, file.settings.budget, file.settings.seed) == ("cpu:1", "30s", 4)
    same = override(file)
    assert same == file
    with pytest.raises(ConfigError, match='--budget = "0s" must be positive'):
        override(file, budget="0s")
    with pytest.raises(
        ConfigError, match='--budget = "soon" is no duration; write one such as "90s" or "5m"'
    ):
        override(file, budget="soon")
