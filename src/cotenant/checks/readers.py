"""The contract of trace readers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cotenant.checks.policies import ContractError
from cotenant.errors import CotenantError
from cotenant.model.ports import TraceReader
from cotenant.model.workload import Workload

__all__ = ["check_reader"]

_JUNK = (b"", b"\n", b"a,b,c\n", b"\xff\xfe\x00\x01", b"[1, 2", b"{}", b"x\t" * 300, b"\x1f\x8b\x08broken")


def check_reader(factory: Callable[[], TraceReader], example: Path, scratch: Path) -> None:
    """A reader knows its own files, balances its report, repeats itself, and survives junk.

    Parameters
    ----------
    factory : callable returning a TraceReader
    example : Path
        A file of the format.
    scratch : Path
        A folder to write junk files into.

    Raises
    ------
    ContractError
    """
    reader = factory()
    head = example.read_bytes()[:65536]
    if not (isinstance(reader.format, str) and reader.format and reader.title):
        raise ContractError("a reader names its format and title")
    if not 0 <= reader.sniff(example, head) <= 1:
        raise ContractError(f"sniff gives {reader.sniff(example, head)}, not a number from 0 to 1")
    one, two = reader.read(example), factory().read(example)
    if not one.frame.equals(two.frame):
        raise ContractError("reading the same file twice gives two workloads")
    report = one.report
    if report is None:
        raise ContractError("the workload has no data report")
    report.check()
    _check_junk(factory, scratch)


def _check_junk(factory: Callable[[], TraceReader], scratch: Path) -> None:
    for number, junk in enumerate(_JUNK):
        path = scratch / f"junk{number}.csv"
        path.write_bytes(junk)
        factory().sniff(path, junk)
        try:
            found = factory().read(path)
        except CotenantError:
            continue
        except Exception as error:
            raise ContractError(f"junk {junk[:12]!r} raises {type(error).__name__}: {error}") from error
        if not isinstance(found, Workload):
            raise ContractError(f"junk {junk[:12]!r} gives {type(found).__name__}")
