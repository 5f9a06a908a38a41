"""Where a process of an elastic run goes: its environment and its cores; and the control file that says so."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cotenant.errors import InputError

__all__ = ["Control", "Orders", "Slot", "surplus"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CORES = re.compile(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*")


class Slot(NamedTuple):
    """A place for one process; equal ones are as good as each other.

    Attributes
    ----------
    environment : tuple of (str, str)
        Variables that are set for it, ``("CUDA_VISIBLE_DEVICES", "1")`` say, by name.
    cores : tuple of int
        Cores it may run on; empty is all that the supervisor has.
    """

    environment: tuple[tuple[str, str], ...] = ()
    cores: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Slot:
        """Read ``NAME=VALUE ... cores=0-3,8``.

        Raises
        ------
        InputError

        Examples
        --------
        >>> Slot.parse("CUDA_VISIBLE_DEVICES=1 cores=0-1,4")
        Slot(environment=(('CUDA_VISIBLE_DEVICES', '1'),), cores=(0, 1, 4))
        """
        found: dict[str, str] = {}
        cores: tuple[int, ...] = ()
        for word in text.split():
            name, equals, value = word.partition("=")
            if not equals or not _NAME.fullmatch(name):
                raise InputError(f"place {text!r}: {word!r} must be NAME=VALUE, or cores=0-3,8")
            if name == "cores":
                cores = _cores(value, text)
            else:
                found[name] = value
        return cls.of(found, cores)

    @classmethod
    def of(cls, environment: Mapping[str, str], cores: Sequence[int] = ()) -> Slot:
        """From a mapping, in the one order in which slots are compared."""
        return cls(tuple(sorted(environment.items())), tuple(sorted(set(cores))))

    def pin(self, process: int) -> None:
        """Keep a process, which has just been started, to the cores.

        Raises
        ------
        InputError
            If this machine has none of them, or they are not ours.
        """
        if not self.cores:
            return
        try:
            os.sched_setaffinity(process, self.cores)
        except ProcessLookupError:
            return  # it has ended already, which its exit code will tell
        except (OSError, ValueError) as error:
            mine = sorted(os.sched_getaffinity(0))
            raise InputError(
                f"cores={_ranges(self.cores)}: {error}; this run may use {_ranges(mine)}"
            ) from None

    def __str__(self) -> str:
        words = [f"{name}={value}" for name, value in self.environment]
        return " ".join([*words, f"cores={_ranges(self.cores)}"] if self.cores else words) or "anywhere"


def _cores(value: str, text: str) -> tuple[int, ...]:
    if not _CORES.fullmatch(value):
        raise InputError(f"place {text!r}: cores={value} must be numbers and ranges, for example 0-3,8")
    found: list[int] = []
    for part in value.split(","):
        low, _, high = part.partition("-")
        found.extend(range(int(low), int(high or low) + 1))
    if not found:
        raise InputError(f"place {text!r}: cores={value} has no core in it")
    return tuple(found)


def _ranges(cores: Sequence[int]) -> str:
    return ",".join(str(core) for core in cores)


class Orders(NamedTuple):
    """What a control file says.

    Attributes
    ----------
    processes : int, optional
    slots : list of Slot, optional
        One for each process that is wanted.
    checkpoint : str
        A checkpoint is written each time this becomes another.
    order : str
        What whoever wrote it calls it, to know the answer by.
    """

    processes: int | None = None
    slots: tuple[Slot, ...] | None = None
    checkpoint: str = ""
    order: str = ""


class Control:
    """A control file: a number, or a line ``NAME=VALUE ...`` for each process; ``checkpoint WORD``, ``order WORD``.

    A file that is not there, or empty (somebody is writing it), orders nothing.

    Raises
    ------
    InputError
        If its folder is not there, or it is a folder itself.
    """

    def __init__(self, path: Path) -> None:
        if not path.parent.is_dir():
            raise InputError(f"control file {path}: there is no folder {path.parent}; make it first")
        if path.is_dir():
            raise InputError(f"control file {path}: it is a folder; name a file, which may come later")
        self._path = path
        self._text = ""
        self._errno: int | None = None
        self._seen = Orders()

    def news(self) -> Orders:
        """What is ordered now that was not at the last call.

        Raises
        ------
        InputError
            Names file and line; once for each content of the file.
        """
        try:
            text = self._path.read_text(errors="replace")
        except FileNotFoundError:
            return Orders()
        except OSError as error:
            if error.errno == self._errno:
                return Orders()
            self._errno = error.errno
            raise InputError(f"control file {self._path}: {error.strerror}") from None
        if text == self._text:
            return Orders()
        self._text = text
        found, before = self._parse(text), self._seen
        # A checkpoint that was ordered once is not ordered again by a file that leaves it out meanwhile.
        self._seen = found._replace(checkpoint=found.checkpoint or before.checkpoint)
        return Orders(
            None if found.processes == before.processes else found.processes,
            None if found.slots == before.slots else found.slots,
            "" if found.checkpoint == before.checkpoint else found.checkpoint,
            found.order,
        )

    def _parse(self, text: str) -> Orders:
        processes: int | None = None
        slots: list[Slot] = []
        checkpoint = order = ""
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words:
                continue
            if words[0] == "checkpoint":
                checkpoint = " ".join(words[1:]) or "now"
            elif words[0] == "order":
                order = " ".join(words[1:])
            elif len(words) == 1 and words[0].isdecimal() and len(words[0]) < 7:
                processes = int(words[0])
            else:
                try:
                    slots.append(Slot.parse(line))
                except InputError as error:
                    raise InputError(
                        f"{self._path}:{number}: {error}; a line is a number of processes, a place, checkpoint"
                        " WORD or order WORD"
                    ) from None
        if slots and processes is not None:
            raise InputError(f"{self._path}: both a number of processes and places; give one of them")
        return Orders(processes, tuple(slots) or None, checkpoint, order)


def surplus(held: Mapping[str, Slot], wanted: Sequence[Slot]) -> tuple[list[str], list[Slot]]:
    """Processes for which no place is wanted, and places wanted that nobody holds.

    >>> a, b = Slot.parse("D=0"), Slot.parse("D=1")
    >>> surplus({"0": a, "1": a}, [a, b])
    (['1'], [Slot(environment=(('D', '1'),), cores=())])
    """
    free = list(wanted)
    over: list[str] = []
    for name, slot in held.items():
        if slot in free:
            free.remove(slot)
        else:
            over.append(name)
    return over, free
