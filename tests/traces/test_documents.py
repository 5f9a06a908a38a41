"""Files from people: nothing in them runs, nothing in them is guessed (case C64)."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.errors import ConfigError, CotenantError
from cotenant.traces.clusterfile import read_cluster
from cotenant.traces.documents import MAX_DOCUMENT_BYTES, read_document


class _Job(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    gpus: int = 1


def _write(tmp_path: Path, text: str, name: str = "x.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "tag",
    [
        "!!python/object/apply:os.system ['touch {marker}']",
        "!!python/object/apply:pathlib.Path.touch ['{marker}']",
        "!!python/name:os.system",
        "!!binary aGVsbG8=",
        "!!str 5",
        "!mine {{a: 1}}",
        "! plain",
    ],
)
def test_a_tag_is_refused_with_its_line_and_runs_nothing(tmp_path: Path, tag: str) -> None:
    marker = tmp_path / "marker"
    path = _write(tmp_path, f"name: x\ncommand: {tag.format(marker=marker)}\n")
    with pytest.raises(ConfigError, match=r"x\.yaml:2: tag .* is refused"):
        read_document(path)
    assert not marker.exists()


def test_an_alias_bomb_is_refused_at_its_first_anchor(tmp_path: Path) -> None:
    lines = ["a: &a [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    for level in range(8):
        above, here = chr(ord("a") + level), chr(ord("b") + level)
        lines.append(f"{here}: &{here} [{', '.join([f'*{above}'] * 9)}]")
    with pytest.raises(ConfigError, match=r"x\.yaml:1: anchors and aliases"):
        read_document(_write(tmp_path, "\n".join(lines)))


def test_a_key_twice_is_an_error_in_both_languages(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"x\.yaml:3: key 'gpus' appears twice"):
        read_document(_write(tmp_path, "name: a\ngpus: 1\ngpus: 2\n"))
    with pytest.raises(ConfigError, match=r"x\.toml: .*overwrite.*line 3"):
        read_document(_write(tmp_path, 'name = "a"\ngpus = 1\ngpus = 2\n', "x.toml"))


def test_a_tab_is_an_error_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"x\.yaml:2: not valid YAML"):
        read_document(_write(tmp_path, "nodes:\n\t- name: a\n"))


@pytest.mark.parametrize(
    "word", ["no", "yes", "on", "off", "NO", "True", "012", "1_000", "1e3", "0x10", "1:30", ".inf"]
)
def test_words_and_odd_numbers_stay_text(tmp_path: Path, word: str) -> None:
    document = read_document(_write(tmp_path, f"name: {word}\n"))
    assert document.convert(_Job).name == word


@pytest.mark.parametrize("number", ["1_000", "012", "1e3", "0x10", "1.0", "'4'", "true", "~"])
def test_odd_numbers_are_no_counts(tmp_path: Path, number: str) -> None:
    document = read_document(_write(tmp_path, f"name: a\ngpus: {number}\n"))
    with pytest.raises(ConfigError, match=r"x\.yaml:2 \[gpus\]: Expected `int`"):
        document.convert(_Job)


def test_toml_numbers_follow_toml(tmp_path: Path) -> None:
    assert read_document(_write(tmp_path, 'name = "a"\ngpus = 1_000\n', "a.toml")).convert(_Job).gpus == 1000
    with pytest.raises(ConfigError, match=r"b\.toml: not valid TOML.*line 2"):
        read_document(_write(tmp_path, 'name = "a"\ngpus = 012\n', "b.toml"))
    with pytest.raises(ConfigError, match=r"c\.toml \[gpus\]: Expected `int`, got `float`; found 1000\.0"):
        read_document(_write(tmp_path, 'name = "a"\ngpus = 1e3\n', "c.toml")).convert(_Job)


def test_plain_values_read_as_they_should(tmp_path: Path) -> None:
    text = "a: 5\nb: -1.5\nc: true\nd: null\ne: 'x: y'\nf: [1, two]\ng: {h: 0}\ni: |\n  line\n"
    assert read_document(_write(tmp_path, text)).data == {
        "a": 5,
        "b": -1.5,
        "c": True,
        "d": None,
        "e": "x: y",
        "f": [1, "two"],
        "g": {"h": 0},
        "i": "line\n",
    }


def test_an_unknown_key_gets_the_nearest_and_the_list(tmp_path: Path) -> None:
    document = read_document(_write(tmp_path, "name: a\ngpu: 2\n"))
    with pytest.raises(ConfigError, match=r"unknown key 'gpu'; did you mean 'gpus'\? \(known: gpus, name\)"):
        document.convert(_Job)


def test_large_files_are_refused_before_they_are_read(tmp_path: Path) -> None:
    for name, size in (
        ("big.yaml", 50_000_000),
        ("big.toml", MAX_DOCUMENT_BYTES + 1),
        ("big.csv", 50_000_001),
    ):
        path = tmp_path / name
        with path.open("wb") as target:
            target.truncate(size)
        with pytest.raises(ConfigError, match="limit"):
            read_cluster(path)


def test_pickles_and_other_things_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ConfigError):
        read_document(path)
    renamed = tmp_path / "model.yaml"
    renamed.write_bytes(pickle.dumps({"a": [1.5] * 40}))
    with pytest.raises(ConfigError, match=r"UTF-8|YAML"):
        read_document(renamed)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "", "is empty"),
        ("a.toml", " \n\n", "is empty"),
        ("a.yaml", "- 1\n- 2\n", "keys and values at the top"),
        ("a.yaml", "a: 1\n---\nb: 2\n", "second document"),
        ("a.yaml", "? [1, 2]\n: 3\n", "a key must be plain text"),
        ("a.yaml", "a: " + "9" * 30 + "\n", "too large"),
        ("a.ini", "[a]\n", "suffix"),
        ("a.yaml", "a: " + "[" * 50 + "]" * 50 + "\n", "nested"),
        ("a.toml", "a = " + "[" * 5000 + "]" * 5000 + "\n", "nested"),
    ],
)
def test_each_other_fault_has_its_message(tmp_path: Path, name: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_document(_write(tmp_path, text, name))


def test_folders_and_absent_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="directory"):
        read_document(tmp_path)
    with pytest.raises(ConfigError, match="No such file"):
        read_document(tmp_path / "absent.toml")


def test_latin_1_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes("name: dédé\n".encode("latin-1"))
    with pytest.raises(ConfigError, match="UTF-8"):
        read_document(path)
    path.write_bytes(b"\xef\xbb\xbf" + "name: dédé\n".encode())
    assert read_document(path).data == {"name": "dédé"}


@settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(
    st.one_of(
        st.binary(max_size=200),
        st.text(max_size=200).map(lambda text: text.encode("utf-8", "ignore")),
        st.lists(st.sampled_from(list("[]{}:,-?&*!|>'\"\n \t#%@a1=.")), max_size=80).map(
            lambda c: "".join(c).encode()
        ),
    ),
    st.sampled_from(["f.yaml", "f.toml"]),
)
def test_any_bytes_give_a_document_or_our_error(tmp_path: Path, data: bytes, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    try:
        read_cluster(path)
    except CotenantError as error:
        assert name in str(error)
