"""Policy specifications, folder names, settings from words."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.errors import ConfigError, InputError, UsageError
from cotenant.model.settings import Settings
from cotenant.runs.config import RunConfig, parse_settings
from cotenant.runs.spec import build_policy, folder_names, parse_policies, parse_policy

MINE = """
class Mine:
    def __init__(self, *, factor: float = 1.0) -> None:
        self.factor = factor

    def decide(self, view):
        return None


class NoPolicy:
    pass


class Needs:
    def __init__(self, *, limit: int) -> None:
        self.limit = limit

    def decide(self, view):
        return None
"""


@pytest.mark.parametrize(
    ("text", "target", "params"),
    [
        ("fifo", "fifo", {}),
        (" las:factor=2 ", "las", {"factor": "2"}),
        ("mine.py:Mine", "mine.py:Mine", {}),
        ("a/b/mine.py:Mine:x=1:y=a=b", "a/b/mine.py:Mine", {"x": "1", "y": "a=b"}),
        ("pkg.mod:Mine:x=", "pkg.mod:Mine", {"x": ""}),
    ],
)
def test_a_specification_is_taken_apart(text: str, target: str, params: dict[str, str]) -> None:
    spec = parse_policy(text)
    assert (spec.target, spec.params) == (target, params)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no policy"),
        ("=3", "not parameter=value"),
        ("las:2x=3", "not parameter=value"),
        ("las:x=3:word", "follows a parameter"),
        ("las:x=1:x=2", "given twice"),
        ("las:", "names no policy"),
    ],
)
def test_a_malformed_specification_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_policy(text)


def test_lists_split_at_commas_and_repeat_nothing() -> None:
    assert [s.text for s in parse_policies(["fifo, las", "srtf"])] == ["fifo", "las", "srtf"]
    with pytest.raises(ConfigError, match='"fifo" is named twice'):
        parse_policies(["fifo,las,fifo"])
    with pytest.raises(ConfigError, match="no policy given; known: "):
        parse_policies([","])


def test_a_policy_of_ones_own_is_loaded_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    policy = build_policy(parse_policy(f"{tmp_path}/mine.py:Mine:factor=2.5"))
    assert policy.factor == 2.5
    assert parse_policy("mine.py:Mine").plugin_file == "mine.py"
    assert parse_policy("fifo").plugin_file is None


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        ("NoPolicy", "has no decide(view): it needs a class with a method decide"),
        ("Absent", "has no 'Absent'; it has: Mine, Needs"),
        ("Mine:facto=1", 'no parameter "facto"; did you mean "factor"'),
        ("Mine:factor=big", "must be float, found 'big'"),
        ("Needs", "Needs needs limit"),
    ],
)
def test_a_wrong_policy_of_ones_own_is_explained(tmp_path: Path, tail: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    with pytest.raises(ConfigError) as caught:
        build_policy(parse_policy(f"{tmp_path}/mine.py:{tail}"))
    assert message in str(caught.value)


def test_a_file_without_a_class_lists_the_policies_it_has(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    with pytest.raises(UsageError, match=r"name a class: .*mine.py:Class \(it has: Mine, Needs\)"):
        build_policy(parse_policy(f"{tmp_path}/mine.py"))
    with pytest.raises(UsageError, match="has no 'Min'; did you mean \"Mine\"\\? it has: Mine, Needs"):
        build_policy(parse_policy(f"{tmp_path}/mine.py:Min"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mine.py:Mine:depth", "'depth' is no parameter=value; write depth=VALUE"),
        ("colocate:least=0,8", "a comma separates policies, so '8' was taken for one; write least=0.8"),
        ("las:steps_s=60,3600", "steps_s=60/3600 for a list"),
    ],
)
def test_what_cannot_be_meant_is_said_before_anything_is_loaded(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_policies([text])


def test_a_misspelt_policy_after_a_parameter_is_still_one() -> None:
    assert [s.target for s in parse_policies(["las:factor=2,fiffo"])] == ["las", "fiffo"]


@given(st.lists(st.text(max_size=90), max_size=6, unique=True))
@settings(max_examples=200, deadline=None)
def test_folder_names_are_safe_distinct_and_stable(texts: list[str]) -> None:
    names = folder_names(texts)
    assert len({n.lower() for n in names}) == len(texts)
    for name in names:
        assert 1 <= len(name) <= 60
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
        assert name[0] not in ".-"
    assert folder_names(texts) == names


def test_hostile_labels_stay_inside_their_folder() -> None:
    names = folder_names(["../../etc/passwd", "..", "/abs:olute", "a b;rm -rf *", "Fifo", "fifo"])
    assert names[0] == "etc-passwd"
    assert all("/" not in n and n not in {"", ".", ".."} for n in names)
    assert names[4] == "Fifo"
    assert names[5].startswith("fifo-")


def test_settings_are_read_by_their_types() -> None:
    assert parse_settings(["round_s=360", "rate_events=no", "type_order=slowest", "starts_per_event=1"]) == {
        "round_s": 360.0,
        "rate_events": False,
        "type_order": "slowest",
        "starts_per_event": 1,
    }


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("max_sharer=2", 'no setting "max_sharer"; did you mean "max_sharers"'),
        ("max_sharers", "write name=value"),
        ("max_sharers=two", "max_sharers=two"),
        ("span_speed=2", r"span_speed must lie in \(0, 1\], found 2"),
        ("round_s=-1", "round_s must be zero or more"),
        ("gang_span=maybe", "gang_span=maybe"),
    ],
)
def test_a_wrong_setting_is_explained(item: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_settings([item])


def test_a_configuration_refuses_what_contradicts_itself() -> None:
    base = {"trace": "t.csv", "policies": ("fifo",)}
    assert RunConfig(**base, seed=3, seeds=2).check().seed_list() == [3, 4]
    assert RunConfig(**base).effective_settings() == Settings()
    with pytest.raises(ConfigError, match="both given"):
        RunConfig(**base, cluster="c.toml", gpus=4).check()
    with pytest.raises(ConfigError, match="seeds must be 1 or more, found 0"):
        RunConfig(**base, seeds=0).check()
    with pytest.raises(ConfigError, match='no setting "sharers"; did you mean "max_sharers"'):
        RunConfig(**base, settings={"sharers": 3}).check()
