"""A process's side of the rendezvous: which generation it belongs to, and who else does.

The supervisor keeps the store. Keys: ``generation`` (number of the newest), ``members/G`` (their
names, in order of rank), ``ready/NAME``, ``here/G/NAME``, ``retire/NAME``, ``broken/G``, ``lost/G``,
``finished``, ``stop``.
"""

from __future__ import annotations

import datetime
import json
import os
import time
from functools import partial

from cotenant.elastic.exchange import Broken, Group
from cotenant.errors import InputError

__all__ = ["ADDRESS", "Finished", "Member", "Retired"]

ADDRESS = "COTENANT_ELASTIC"
"""Environment variable of a supervised process: HOST:PORT:NAME."""
_POLL_S = 0.02


class Retired(SystemExit):
    """The run goes on with fewer processes, and this is not one of them; exit code 0."""


class Finished(Exception):  # noqa: N818
    """The others have done the last step."""


class Member:
    """This process among those of a supervised run.

    Parameters
    ----------
    address : str
        HOST:PORT:NAME.

    Raises
    ------
    InputError
        If it is no such thing.
    """

    def __init__(self, address: str) -> None:
        from torch.distributed import TCPStore

        host, _, rest = address.partition(":")
        port, _, self.name = rest.partition(":")
        if not port.isdigit() or not self.name:
            raise InputError(
                f"{ADDRESS} is {address!r}: it must be HOST:PORT:NAME, as the supervisor sets it"
            )
        limit = datetime.timedelta(seconds=30)
        self._store = TCPStore(host, int(port), is_master=False, timeout=limit)
        self._watching = TCPStore(host, int(port), is_master=False, timeout=limit)  # another thread's
        self.generation = 0

    @classmethod
    def from_environment(cls) -> Member | None:
        """None if there is no supervisor."""
        address = os.environ.get(ADDRESS)
        return cls(address) if address else None

    def has(self, key: str) -> bool:
        """Whether a key is set."""
        return bool(self._store.check([key]))

    def newest(self) -> int:
        """Number of the generation published last; 0 if there is none."""
        return int(self._store.get("generation")) if self.has("generation") else 0

    def join(self) -> Group:
        """Wait for a generation after this process's, and join it.

        Raises
        ------
        Retired, Finished
        """
        from torch.distributed import PrefixStore

        self._store.set(f"ready/{self.name}", "1")
        while True:
            if self.has("finished"):
                raise Finished
            if self.has(f"retire/{self.name}"):
                raise Retired(0)
            number = self.newest()
            if number > self.generation:
                members = json.loads(self._store.get(f"members/{number}"))
                if self.name in members:
                    self.generation = number
                    if not self._all_here(number, members):
                        continue
                    try:
                        return Group(
                            PrefixStore(f"group/{number}", self._store),
                            members.index(self.name),
                            len(members),
                            partial(self._was_lost, number),
                        )
                    except Broken:
                        self.broken()
            time.sleep(_POLL_S)

    def _all_here(self, number: int, members: list[str]) -> bool:
        """Groups are built when all are there: who waits for a dead one would wait for a time-out.

        Either all build or none does: whoever is first to see that all are there, or that there is a
        later generation, decides for all.
        """
        self._store.set(f"here/{number}/{self.name}", "1")
        while not self.has(f"go/{number}"):
            if self._store.check([f"here/{number}/{name}" for name in members]):
                self._store.compare_set(f"go/{number}", "", "yes")
            elif self.newest() > number or self.has("finished"):
                self._store.compare_set(f"go/{number}", "", "no")
            else:
                time.sleep(_POLL_S)
        return bool(self._store.get(f"go/{number}") == b"yes")

    def _was_lost(self, number: int) -> bool:
        return bool(self._watching.check([f"lost/{number}"]))

    def broken(self) -> None:
        """Tell the supervisor that this generation is of no use."""
        self._store.set(f"broken/{self.generation}", "1")

    def finish(self) -> None:
        """Tell that the last step is done: no generation must follow."""
        self._store.set("finished", "1")
