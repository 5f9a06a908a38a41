"""What a process holds of an elastic run, and how it becomes a file or a message and is taken up again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cotenant.elastic import ddp, identity, state
from cotenant.elastic.contexts import Buffers, Context
from cotenant.elastic.members import Member
from cotenant.elastic.replicas import Replicas
from cotenant.elastic.sampling import Data, Mark
from cotenant.elastic.settings import Settings
from cotenant.elastic.sparse import tables
from cotenant.elastic.state import Place
from cotenant.errors import StateError
from cotenant.runtime import contents, randomness

__all__ = ["Held"]

_WORKER, _BETWEEN = 3, 4


class Held:
    """Settings, model and objects, the contexts of all logical workers, and where in the run they are.

    Attributes
    ----------
    place : Place
    contexts : list of Context
        Of all logical workers, as they were after the last step.
    rank, saved, missed : int
        ``saved`` are the steps that the last checkpoint holds, ``missed`` is the last step that the first process did
        not live to end, though the others did; -1 if there is none.
    grade : Grade
    parameters : list of Parameter
        Those that take gradients.
    tables : set of int
        Those, by ``id``, whose gradients are sparse; ``dense`` are the others.
    optimizers : mapping
        By name.
    begun : list of Mark
        ``marks`` at the beginning of the step.
    in_turns : bool
        The turns of a step have begun, and its gradients are not there yet.
    """

    def __init__(
        self,
        settings: Settings,
        loader: Data,
        model: Any,
        objects: contents.Objects,
        parts: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self.settings, self.loader, self.objects = settings, loader, objects
        self.place = Place()
        self._member = Member.from_environment()
        self.rank, self.saved, self.missed = 0, -1, -1
        self.grade = identity.Grade.BITWISE
        self.in_turns = False
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.tables = tables(model)
        self.dense = [p for p in self.parameters if id(p) not in self.tables]
        self._all = list(model.parameters())
        self.optimizers = parts["optimizer"]
        self._buffers = Buffers(model)
        self._replicas = Replicas(model, self._buffers)
        seeds = [randomness.mix(settings.seed, n, _WORKER) for n in range(settings.workers)]
        self.contexts = [Context.seeded(seed) for seed in seeds]
        self.begun = self.marks
        self._between = Context.seeded(randomness.mix(settings.seed, 0, _BETWEEN))

    def _awake(self) -> None:
        """The process's own generators from here on, until the first turn."""
        import numpy as np

        self._scratch = np.random.MT19937(0)
        self._numpy = self._between.enter(keep=False)

    def _see_threads(self) -> None:
        import torch

        self._threads = torch.get_num_threads()

    def _check_threads(self) -> None:
        import torch

        if torch.get_num_threads() != self._threads:
            raise StateError(
                f"CPU threads were changed from {self._threads} to {torch.get_num_threads()} during the run, which"
                " changes bits: leave them, or set elastic.Run(threads=...)"
            )

    @property
    def marks(self) -> list[Mark]:
        """How far all logical workers are in their data."""
        return [context.mark for context in self.contexts]

    def live(self, worker: int) -> bool:
        """Whether a logical worker may have samples at this step."""
        return self.loader.live(*self.place[1:], worker, self.begun[worker])

    def ends_epoch(self) -> bool:
        """Whether this step, of which the turns are over, is the last of its epoch."""
        return self.loader.over(self.place.epoch, self.place.within + 1, self.marks)

    def identity(self) -> dict[str, str]:
        """What the bits depend on."""
        own = {
            "logical workers": str(self.settings.workers),
            "order": self.settings.order,
            "leaves": str(self.settings.leaves),
            "seed": str(self.settings.seed),
        }
        if self.settings.order == "ddp":
            own |= ddp.identity()
        return own | self.loader.identity() | identity.environment(self._all, self.optimizers)

    @property
    def member(self) -> Member | None:
        """This process among those of a supervised run."""
        return self._member

    def _tell(self, what: str) -> None:
        if self._member is not None:
            self._member.tell(what, self.place.step)

    def _all_saved(self) -> bool:
        """Whether all can leave: nobody does before the first process, which is now or was behind its ``save``, has written."""
        if self._member is None or self.settings.folder is None:
            return True
        if self.rank:
            return self._member.written()
        self._member.wrote()
        return True

    def all_killed(self) -> bool:
        """Whether that has happened in this run."""
        return self._member is not None and self._member.has("all-killed")

    def load(self) -> None:
        """Newest state of the folder, if there is one."""
        if self.settings.folder is not None:
            found = state.newest(self.settings.folder)
            if found is not None:
                self.put(*found)
                self.saved = self.place.step

    def put(self, content: Mapping[str, Any], where: str) -> None:
        """Become what a state says."""
        import torch

        there = content["cotenant"]["identity"]
        if self.settings.adopt_threads:
            torch.set_num_threads(int(there["CPU threads"]))
        left = identity.judge(there, self.identity(), self.settings.least, where)
        self.grade = min(self.grade, left)
        if len(content["workers"]) != self.settings.workers:
            raise StateError(
                f"{where}: {len(content['workers'])} logical workers, {self.settings.workers} here"
            )
        self.objects.put(content, where)
        self.place = Place(*content["cotenant"]["place"])
        self.contexts = [Context.unpacked(kept) for kept in content["workers"]]
        if left is identity.Grade.CHANGED and self.loader.counted:
            for context in self.contexts:  # what they say is of other data
                context.mark = {}
        self._between = Context.unpacked(content["between"])
        self._buffers.enter(self.contexts[0].buffers)
        self._numpy = self._between.enter(keep=False)

    def pack(self, contexts: list[Context] | None = None) -> dict[str, Any]:
        """The state after the last step; with the contexts of then, if they are others by now."""
        between = self._between if self.in_turns else Context.leave(self._numpy)
        return state.pack(self.objects, self.place, self.identity(), contexts or self.contexts, between)

    def save(self) -> None:
        """Write a checkpoint, on the first process."""
        if self.settings.folder is None or self.rank or self.saved == self.place.step:
            return
        state.save(self.settings.folder, self.pack(), self.place.step, self.settings.keep)
        self.saved = self.place.step
