"""The supervisor's side of the rendezvous: what it tells processes, and what they tell it.

The keys are described where processes use them, in ``members``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from cotenant.elastic.members import Orders
from cotenant.elastic.resolving import no_questions
from cotenant.errors import MissingExtraError

__all__ = ["Board"]


class Board:
    """The store of one run, on a port of loopback.

    Attributes
    ----------
    port : int

    Raises
    ------
    MissingExtraError
    """

    def __init__(self) -> None:
        # PyTorch reads it when it is imported, here and in the processes that are started from here. Without, it warns
        # of the name that ``no_questions`` keeps it from, and with 50 lines of C++ of a supervisor that is gone.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        try:
            from torch.distributed import TCPStore
        except ImportError:
            raise MissingExtraError("elastic training", "torch") from None
        with no_questions():
            self._store: Any = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.port: int = self._store.port
        for key in Orders._fields:
            self._store.set(key, "0")

    # -- what processes have told --------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Whether one of them has done the last step."""
        return self._has("finished")

    @property
    def missed(self) -> bool:
        """Whether the first process was killed in the last step, which the others have finished."""
        return self._has("missed")

    @property
    def stopping(self) -> bool:
        """Whether all were asked to save and leave; one of them may have asked."""
        return bool(self._store.get("stop") == b"1")

    @property
    def begun(self) -> int:
        """The newest generation of which a process has been part, with the state of the run; 0 if there is none."""
        return int(self._store.get("begun")) if self._has("begun") else 0

    @property
    def saved(self) -> bool:
        """Whether the generation begun last has saved its state to leave."""
        return self._has(f"saved/{self.begun}")

    def broken(self, generation: int) -> bool:
        """Whether a process could not be part of this generation."""
        return self._has(f"broken/{generation}")

    def ready(self, name: str) -> bool:
        """Whether it has waited for a generation."""
        return self._has(f"ready/{name}")

    def inside(self, name: str) -> bool:
        """Whether it has been part of a generation, with the state of the run."""
        return self._has(f"in/{name}")

    def waiting(self, name: str) -> bool:
        """Whether it has told that it waits for a generation, and not yet that it is in one."""
        if not self.ready(name):
            return False
        if not self.inside(name):
            return True
        return int(self._store.get(f"in/{name}")) <= int(self._store.get(f"ready/{name}"))

    def told(self, name: str) -> str:
        """What it said last that it does, and at which step; empty if nothing."""
        key = f"at/{name}"
        return self._store.get(key).decode() if self._has(key) else ""

    # -- what they are told --------------------------------------------------------------

    def publish(self, generation: int, names: Sequence[str], *, handover: bool) -> None:
        """A generation: who is part of it, in order of rank."""
        self._store.set(f"members/{generation}", json.dumps({"names": list(names), "handover": handover}))
        self._store.set("generation", str(generation))

    def lost(self, generation: int) -> None:
        """Nobody of this generation is to wait for another any more."""
        self._store.set(f"lost/{generation}", "1")

    def retire(self, name: str) -> None:
        """It is to leave."""
        self._store.set(f"retire/{name}", "1")

    def checkpoint(self, number: int) -> None:
        """So many checkpoints have been ordered."""
        self._store.set("checkpoint", str(number))

    def stop(self) -> None:
        """All are to save and leave."""
        self._store.set("stop", "1")

    def left(self) -> None:
        """One has left its loop early: nobody is to wait for it."""
        self._store.set("left", "1")

    def late_death(self) -> None:
        """One was killed after the last step: what waits for it in the script's end need not."""
        self._store.set("late-death", "1")

    def tell(self) -> None:
        """All are to say what they do."""
        self._store.set("tell", "1")

    def all_killed(self) -> None:
        """Nobody was left: those that start may have lost work."""
        self._store.set("all-killed", "1")

    def _has(self, key: str) -> bool:
        return bool(self._store.check([key]))
