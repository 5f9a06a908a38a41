"""The command that shows a job's output."""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.app.livebase import PANEL, JobArgument, State, asking
from cotenant.errors import UsageError

if TYPE_CHECKING:
    from cotenant.live.client import Client

__all__ = ["Harmless", "add_to", "as_json_lines", "pieces"]

_TAIL_BYTES = 4 << 20
_LONGEST_LINE = 1 << 20
"""In characters; what has no end, as a progress bar that only moves the cursor back, is told in parts so long."""
_HARMLESS = re.compile(rb"\x1b\[[0-9;]{0,32}[mKABCDGJ]")
"""Colours, and what progress bars move the cursor with."""
_ESCAPE = re.compile(rb"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]")
_UNFINISHED = re.compile(rb"(?:\x1b(?:\[[0-9;]{0,32})?|\xc2)\Z")


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(rich_help_panel=PANEL)(logs)


def logs(  # noqa: PLR0917 - one parameter for each option
    job: JobArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as it is written, until the job has ended.")
    ] = False,
    errors: Annotated[bool, typer.Option("--stderr", help="Standard error in place of output.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, help="Only so many lines from the end.")
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="Bytes as they are, on a terminal, too; else what could harm it is escaped."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object for each line, in a line: job, stream, text.")
    ] = False,
    state: State = None,
) -> None:
    """Show what a job wrote, as it wrote it."""
    if as_json and raw:
        raise UsageError("--json tells text, and --raw shows bytes; leave one of them out")
    stream = "stderr" if errors else "stdout"
    out = sys.stdout.buffer
    calm = Harmless() if sys.stdout.isatty() and not raw and not as_json else None
    with asking(state) as client:
        number = client.find(job).id
        parts = pieces(client, number, stream, follow=follow, tail=tail)
        for part in as_json_lines(parts, number, stream) if as_json else parts:
            out.write(part if calm is None else calm(part))
            out.flush()
    if calm is not None:
        out.write(calm.rest())
        out.flush()


def pieces(client: Client, number: int, stream: str, *, follow: bool, tail: int | None) -> Iterator[bytes]:
    """A job's output: all of it, or its last lines; then what comes, if it is to be followed."""
    offset = 0
    if tail is not None:
        offset, data = _ending(client, number, stream)
        yield _last_lines(data, tail)
    if follow:
        yield from client.follow(number, stream=stream, offset=offset)
    elif tail is None:
        while True:
            offset, data = client.output(number, stream=stream, offset=offset)
            if not data:
                return
            yield data


def as_json_lines(parts: Iterable[bytes], number: int, stream: str) -> Iterator[bytes]:
    """A job's output as JSON objects, one a line, for each of its lines; a last line need not be ended.

    Only a line feed ends a line. What is no UTF-8 becomes U+FFFD; all else but ASCII is escaped, so that
    nothing of a job's output reaches a terminal as it is.

    >>> list(as_json_lines([b"a\\nb"], 7, "stdout"))[1]
    b'{"job": 7, "stream": "stdout", "text": "b"}\\n'
    """

    def told(text: str) -> bytes:
        return json.dumps({"job": number, "stream": stream, "text": text}).encode("ascii") + b"\n"

    decoder, held = codecs.getincrementaldecoder("utf-8")("replace"), ""
    for part in parts:
        *lines, held = (held + decoder.decode(part)).split("\n")
        if lines:
            yield b"".join(map(told, lines))
        if len(held) > _LONGEST_LINE:
            yield told(held)
            held = ""
    held += decoder.decode(b"", final=True)
    if held:
        yield told(held)


def _ending(client: Client, number: int, stream: str) -> tuple[int, bytes]:
    """Where output ends now, and what stands before; it comes in pieces, and a job that writes on has more of it."""
    offset, data = client.output(number, stream=stream, offset=-_TAIL_BYTES)
    parts, left = [data], 2 * _TAIL_BYTES - len(data)
    while data and left > 0:
        offset, data = client.output(number, stream=stream, offset=offset)
        parts.append(data)
        left -= len(data)
    return offset, b"".join(parts)


def _last_lines(data: bytes, count: int) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(lines[-count:]) if count else b""


class Harmless:
    """Makes output fit for a terminal: colours and cursor moves stay, other control sequences are escaped.

    Output of a job can hold anything; some sequences change a terminal's title, or make it answer as
    if somebody had typed. Sequences may be cut between two parts.

    >>> calm = Harmless()
    >>> calm(b"a\\x1b[31mb\\x1b]0;title\\x07")
    b'a\\x1b[31mb\\\\x1b]0;title\\\\x07'
    """

    def __init__(self) -> None:
        self._held = b""

    def __call__(self, part: bytes) -> bytes:
        data = self._held + part
        cut = _UNFINISHED.search(data)
        self._held = data[cut.start() :] if cut else b""
        return _escaped(data[: cut.start()] if cut else data)

    def rest(self) -> bytes:
        """What was held back as the beginning of a sequence."""
        held, self._held = self._held, b""
        return _escaped(held)


def _escaped(data: bytes) -> bytes:
    parts, last = [], 0
    for found in _HARMLESS.finditer(data):
        parts += [_ESCAPE.sub(_shown, data[last : found.start()]), found.group()]
        last = found.end()
    return b"".join([*parts, _ESCAPE.sub(_shown, data[last:])])


def _shown(found: re.Match[bytes]) -> bytes:
    return b"".join(b"\\x%02x" % byte for byte in found.group())
