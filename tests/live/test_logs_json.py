"""Output of a job as JSON, one object a line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.app import livelogs
from cotenant.app.livelogs import as_json_lines

Scheduler = Any  # of conftest.py


def texts(*parts: bytes) -> list[str]:
    """What the objects say; each is on a line of its own, and all are of this job and stream."""
    found = [json.loads(line) for line in b"".join(as_json_lines(parts, 7, "stderr")).splitlines()]
    assert all(one | {"text": ""} == {"job": 7, "stream": "stderr", "text": ""} for one in found)
    return [one["text"] for one in found]


def test_each_line_is_an_object_and_only_a_line_feed_ends_one() -> None:
    assert texts() == texts(b"") == []
    assert texts(b"a\n\nb") == ["a", "", "b"]
    assert texts(b"10%\r20%\r\n", "x\u2028y\x85\n".encode()) == ["10%\r20%\r", "x\u2028y\x85"]
    assert texts(b"f\xc3", b"\xbcr\n\xff\n\xf0\x9f") == ["für", "\ufffd", "\ufffd"]


def test_nothing_that_a_terminal_obeys_is_written() -> None:
    (line,) = as_json_lines(["\x1b]0;t\x07\x9b2J\x7f".encode()], 7, "stdout")
    assert line == b'{"job": 7, "stream": "stdout", "text": "\\u001b]0;t\\u0007\\u009b2J\\u007f"}\n'


def test_lines_are_told_when_they_end_and_endless_ones_in_parts(monkeypatch: Any) -> None:
    def parts() -> Iterator[bytes]:
        for part in (b"a", b"b\nc", b"d\n"):
            given_to_it.append(part)
            yield part

    given_to_it: list[bytes] = []
    lines = as_json_lines(parts(), 7, "stdout")
    assert json.loads(next(lines))["text"] == "ab"
    assert given_to_it == [b"a", b"b\nc"]
    monkeypatch.setattr(livelogs, "_LONGEST_LINE", 4)
    assert texts(b"12", b"345\r", b"6789\n") == ["12345\r", "6789"]


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=5))
@settings(max_examples=100, deadline=None)
def test_where_output_is_cut_makes_no_difference(data: bytes, cuts: list[int]) -> None:
    ends = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    whole = data.decode("utf-8", "replace").split("\n")
    assert texts(*(data[a:b] for a, b in pairwise(ends))) == (whole if whole[-1] else whole[:-1])


def test_output_of_a_real_job_is_told_to_its_end(calm: Scheduler) -> None:
    code = "echo für; echo bad >&2; sleep 0.3; echo two; printf rest"
    number = calm.submit("/bin/sh", "-c", code, name="told")

    def said(*options: str) -> list[Any]:
        done = subprocess.run(
            [sys.executable, "-m", "cotenant", "logs", "told", "--json", *options],
            capture_output=True,
            timeout=180,
            check=True,
            env={**os.environ, "COTENANT_STATE_DIR": str(calm.state), "LC_ALL": "C"},
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    whole = [{"job": number, "stream": "stdout", "text": text} for text in ("für", "two", "rest")]
    assert said("--follow") == whole
    assert said() == whole
    assert said("--tail", "1") == whole[2:]
    assert said("--stderr") == [{"job": number, "stream": "stderr", "text": "bad"}]


def test_bytes_and_text_cannot_both_be_asked_for(calm: Scheduler) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cotenant", "logs", "told", "--json", "--raw", "--state", str(calm.state)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "leave one of them out" in done.stderr
