"""A process's side of the rendezvous: which generation it belongs to, and who else does.

The supervisor keeps the store. Keys that it writes: ``generation`` (number of the newest), ``members/G``
(their names, in order of rank), ``retire/NAME``, ``lost/G``, ``stop``, ``checkpoint`` (how many were
ordered), ``all-killed`` (once nobody was left), ``left`` (one has left the loop early, as all will), ``late-death``
(one was killed after the last step), ``tell`` (processes are to say what they do). Keys that processes write: ``ready/NAME`` (waits for a generation after
this one), ``here/G/NAME``, ``go/G``, ``in/NAME`` (is part of this one, and has the state of the run),
``begun`` (the newest generation with such a process), ``at/NAME`` (what it does), ``broken/G``, ``saved/G``
(the state, by its first process, so that all can leave), ``past`` (steps that the first process has been
through), ``finished`` (the last step is done, and saved), ``missed`` (but its first process was not through).
"""

from __future__ import annotations

import datetime
import json
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from cotenant.elastic.exchange import Broken, Group
from cotenant.elastic.hung import JOIN
from cotenant.elastic.resolving import no_questions
from cotenant.errors import InputError

__all__ = ["ADDRESS", "AGAIN", "MOST", "Finished", "Member", "Orders", "Retired", "reachable"]

ADDRESS = "COTENANT_ELASTIC"
"""Environment variable of a supervised process: HOST:PORT:NAME."""
MOST = "COTENANT_ELASTIC_MOST"
"""Another: how many processes there may be at most."""
AGAIN = 86
"""Exit code of a process that is to be started anew: its group has changed."""
_POLL_S = 0.02
_ANSWER_S = 30.0


def reachable(host: str, port: int) -> bool:
    """Whether somebody listens there; PyTorch's store would try for long, and write about it."""
    try:
        socket.create_connection((host, port), timeout=_ANSWER_S).close()
    except OSError:
        return False
    return True


class Retired(SystemExit):
    """The run goes on with fewer processes, and this is not one of them; exit code 0."""


class Finished(Exception):  # noqa: N818
    """The others have done the last step."""


class Orders(NamedTuple):
    """What the supervisor wants; processes of a group agree on the largest of each at every step.

    Attributes
    ----------
    generation : int
        Number of the newest; 0 if there is none.
    stop : int
        1 to save and leave.
    checkpoint : int
        How many checkpoints have been ordered.
    """

    generation: int = 0
    stop: int = 0
    checkpoint: int = 0


class Member:
    """This process among those of a supervised run.

    Parameters
    ----------
    address : str
        HOST:PORT:NAME.

    Attributes
    ----------
    generation : int
        Of which this process is part.
    handover : bool
        This generation has too many processes: it takes no step, the state is sent and the next one follows.

    Raises
    ------
    InputError
        If it is no such thing.
    """

    def __init__(self, address: str) -> None:
        self._host, _, rest = address.partition(":")
        port, _, self.name = rest.partition(":")
        if not port.isdigit() or not self.name:
            raise InputError(
                f"{ADDRESS} is {address!r}: it must be HOST:PORT:NAME, as the supervisor sets it"
            )
        self._port = int(port)
        if not reachable(self._host, self._port):
            raise InputError(
                f"nobody answers at {self._host}:{port}, which {ADDRESS} names: the supervisor is gone; start the run again,"
                f" or unset {ADDRESS}"
            )
        self._store = self._connect()
        self._watching = self._connect()  # another thread's
        self._tells = self.has("tell")
        self.generation = 0
        self.handover = False

    def _connect(self) -> Any:
        from torch.distributed import TCPStore

        limit = datetime.timedelta(seconds=30)
        with no_questions():
            return TCPStore(self._host, self._port, is_master=False, timeout=limit)

    @classmethod
    def from_environment(cls) -> Member | None:
        """None if there is no supervisor."""
        address = os.environ.get(ADDRESS)
        return cls(address) if address else None

    def has(self, key: str) -> bool:
        """Whether a key is set."""
        return bool(self._store.check([key]))

    def answering(self) -> Any:
        """The supervisor's store, for what else a process has to tell; None if the supervisor is gone."""
        try:
            self.has("generation")
        except RuntimeError:
            return None
        return self._store

    def newest(self) -> int:
        """Number of the generation published last; 0 if there is none."""
        return self.orders().generation

    def orders(self) -> Orders:
        """What is wanted at this moment."""
        return Orders(*(int(value) for value in self._store.multi_get(list(Orders._fields))))

    def stop(self) -> None:
        """Order, for the supervisor, that all save and leave."""
        self._store.set("stop", "1")

    def tell(self, what: str, step: int) -> None:
        """Say what this process does, if the supervisor looks for hung ones."""
        if self._tells:
            self._store.set(f"at/{self.name}", f"{what} {step}")

    def join(self) -> Group:
        """Wait for a generation after this process's, and join it.

        Raises
        ------
        Retired, Finished
        """
        self.tell(JOIN, self.generation)
        self._store.set(f"ready/{self.name}", str(self.generation))
        while True:
            if self.has("finished"):
                raise Finished
            if self.has(f"retire/{self.name}"):
                raise Retired(0)
            number = self.newest()
            if number > self.generation:
                published = json.loads(self._store.get(f"members/{number}"))
                members = published["names"]
                if self.name in members:
                    self.generation, self.handover = number, published["handover"]
                    if not self._all_here(number, members):
                        continue
                    try:
                        return self._group(number, members)
                    except Broken:
                        self.broken()
            time.sleep(_POLL_S)

    def _group(self, number: int, members: list[str]) -> Group:
        from torch.distributed import PrefixStore

        # By a connection of its own: whoever waits in vain for another's key would keep this process from
        # reading anything else.
        store = PrefixStore(f"group/{number}", self._connect())
        return Group(store, members.index(self.name), len(members), partial(self._was_lost, number))

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

    def inside(self) -> None:
        """Tell that this process is part of its generation, and has the state of the run."""
        self._store.set(f"in/{self.name}", str(self.generation))
        self._store.set("begun", str(self.generation))

    def broken(self) -> None:
        """Tell the supervisor that this generation is of no use."""
        self._store.set(f"broken/{self.generation}", "1")

    def finished(self) -> bool:
        """Wait until the first process has told that all is done; False if a generation follows instead."""
        return self._told("finished", lambda: self.newest() > self.generation)

    def written(self) -> bool:
        """Wait until the first process has told that the state is saved; False if it is gone, or was not to save."""
        first = self._names(self.generation)[0]
        return self._told(f"saved/{self.generation}", lambda: self._waits_or_gone(first))

    def _told(self, key: str, never: Callable[[], bool]) -> bool:
        self.tell(JOIN, self.generation)
        while not self.has(key) and not self.has("left"):
            if never():
                return self.has(key)
            time.sleep(_POLL_S)
        return True

    def _waits_or_gone(self, name: str) -> bool:
        newest = self.newest()
        if newest == self.generation:
            return False
        return name not in self._names(newest) or int(self._store.get(f"ready/{name}")) >= self.generation

    def _names(self, number: int) -> list[str]:
        return list(json.loads(self._store.get(f"members/{number}"))["names"])

    def wrote(self) -> None:
        """Tell that the state is saved: all can leave."""
        self._store.set(f"saved/{self.generation}", "1")

    def over(self) -> bool:
        """Whether another has done the last step; for a thread that watches."""
        return bool(self._watching.check(["finished"]))

    def finish(self, *, whole: bool = True) -> None:
        """Tell that the last step is done: no generation must follow; and whether the first process did all of it."""
        if not whole:
            self._store.set("missed", "1")
        self._store.set("finished", "1")

    def passed(self, steps: int) -> None:
        """Tell that the first process has been through the script of so many steps."""
        self._store.set("past", str(steps))

    def past(self) -> int | None:
        """So many; None if that was not told."""
        return int(self._store.get("past")) if self.has("past") else None
