"""One process of an elastic run whose model is sharded."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from cotenant.elastic import scan, state
from cotenant.elastic.contexts import Context, use
from cotenant.elastic.exchange import Broken, from_bytes, to_bytes
from cotenant.elastic.hung import END, EXCHANGE, SCRIPT
from cotenant.elastic.identity import Grade
from cotenant.elastic.members import AGAIN, Orders
from cotenant.elastic.parts import WHOLE, Part
from cotenant.elastic.process import Process, Settings
from cotenant.elastic.sampling import Data
from cotenant.elastic.sharded import Again, Sharding, check_optimizers
from cotenant.elastic.sharded_state import gathered, scattered
from cotenant.errors import InputError
from cotenant.runtime import contents
from cotenant.runtime.run import SUSPENDED, Suspended

__all__ = ["ShardedProcess"]


class ShardedProcess(Process):
    """Takes workers rank, rank + P, ... in rounds; has a shard of parameters, gradients and optimiser state.

    The group never changes in its life: at another number of processes it saves, leaves, and is started
    anew. After a death the survivors leave at once, and all begin from the last checkpoint.
    """

    def __init__(  # noqa: PLR0917 - those of a process, and how it is sharded
        self,
        settings: Settings,
        loader: Data,
        model: Any,
        objects: contents.Objects,
        parts: Mapping[str, Mapping[str, Any]],
        sharding: Sharding,
    ) -> None:
        super().__init__(settings, loader, model, objects, parts)
        check_optimizers(dict(self.optimizers))
        self._sharding, self._member, self._group = sharding, sharding.member, sharding.group
        self._models = parts["model"]
        sharding.summed, self._places = self._shards_summed, set[str]()
        self.rank, self.size = sharding.rank, sharding.size
        self._mine = range(self.rank, settings.workers, self.size)
        self._held: list[Any] = []
        self._spare: Any = None

    def open(self) -> None:
        """Load saved state."""
        self._awake()
        contents.check_loadable(gathered(self.objects.small(), keep=True), "an object given to run.keep()")
        self.load()
        self._see_threads()
        if self._member is not None:
            self._member.inside()
        self.joined = True

    def close(self) -> None:
        """The last step is done."""
        self._tell(END)
        self._sharding.close()

    def _shards_summed(self, place: str) -> None:
        text = (
            f"{place}: a sum over the shards of the model depends on the number of processes: grade statistical if training"
            " uses it; sum the full_tensor() instead"
        )
        if self.settings.least is Grade.BITWISE:
            raise InputError(f"{text}, or lower elastic.Run(least=...)")
        if place not in self._places and self.rank == 0:
            sys.stderr.write(f"cotenant: {text}\n")
        self._places.add(place)
        self.grade = min(self.grade, Grade.STATISTICAL)

    # -- state -----------------------------------------------------------------------

    def identity(self) -> dict[str, str]:
        """What the bits depend on: also which modules compute in another type."""
        return super().identity() | self._sharding.policies

    def put(self, content: Mapping[str, Any], where: str) -> None:
        """Become what a state of full tensors says."""
        super().put(scattered(content, self._models, self.optimizers), where)

    def save(self) -> None:
        """Write a checkpoint of full tensors; all processes take part, the first writes."""
        import torch

        if self.settings.folder is None or self.saved == self.place.step:
            return
        content = gathered(self.pack(), keep=self.rank == 0)
        if self.rank == 0:
            state.save(self.settings.folder, content, self.place.step, self.settings.keep)
        self.saved = self.place.step
        if self._group is None or self._member is None:
            return
        try:  # nobody leaves before it is written
            self._group.largest(torch.zeros(1, dtype=torch.int64))
        except Broken:
            if not self._member.has("finished"):
                raise
            # Another has left with the last step, which it did not before this one was here.

    def boundary(self, *, end: bool) -> bool:
        """Between two steps: save, or save and leave."""
        every, orders = self.settings.every_steps, self._orders
        changed = self._member is not None and not end and orders.generation > self._member.generation
        ordered, self._ordered = orders.checkpoint > self._ordered, max(self._ordered, orders.checkpoint)
        if end or changed or orders.stop or ordered or (every and self.place.step % every == 0):
            self.save()
        if self._member is not None and self.rank == 0 and (orders.stop or changed):
            self._member.wrote()
        if orders.stop and not end:
            self.close()
            raise Suspended(SUSPENDED)
        self._check_threads()
        if changed:
            self.close()
            raise Again(AGAIN)
        if self._member is not None and end:
            self._member.finish()
        return False

    # -- turns -----------------------------------------------------------------------

    def begin_turns(self, part: Part = WHOLE) -> None:
        """The process's own generators make room for the workers'.

        Raises
        ------
        InputError
            If only some parameters' gradients are to be summed.
        """
        if part is not WHOLE:
            raise InputError(
                "step.turn() with a sharded model: its gradients are summed as layers finish, all or none; take all in"
                " one inner loop, or train without shard="
            )
        self._between = Context.leave(self._numpy)
        self.in_turns = True
        self.begun = self.marks
        self._held = [p.grad for p in self.parameters]
        self._sharding.used.clear()
        for reduce in self._sharding.reduces:
            reduce.begin()
        self._fresh = {}

    def turns(self) -> Iterator[Any]:
        """One batch for each round, also where this process has no worker: then what it gives is dropped."""
        workers, turn = self.settings.workers, self._sharding.round
        for number, first in enumerate(range(0, workers, self.size)):
            live = [self._live(first + rank) for rank in range(self.size)]
            if not any(live):
                continue
            turn.begin(number, live)
            worker = first + self.rank
            for parameter in self.parameters:
                parameter.grad = None
            use(self._scratch)
            real = turn.live[self.rank]
            batch, mark = self._next(worker) if real else (self._dummy(), {})
            before = self.contexts[worker if real else 0]
            used = before.enter(keep=True)
            self._buffers.enter(before.buffers)
            self._notes, seen, self.worker = {}, set(self._sharding.used), worker if real else None
            yield batch
            turn.ended(self._sharding.mesh.get_group())
            scan.check_gradients(self.parameters)
            buffers = self._buffers.leave()
            if real:
                after = Context.leave(used)
                after.buffers, after.notes, after.mark = buffers, self._notes, mark
                self._fresh[worker], self._spare = after, batch
            else:
                self._sharding.used = seen
        turn.over()

    def _live(self, worker: int) -> bool:
        return worker < self.settings.workers and self.live(worker)

    def _dummy(self) -> Any:
        if self._spare is None:
            self._spare, _ = next(self.loader.open(*self.place[1:], [0], self.begun))
        return self._spare

    def end_turns(self) -> bool:
        """The sums are there: the mean of them, and the contexts of all."""
        self._tell(EXCHANGE)
        self._share()
        idle = not self._live(self.settings.workers - 1)
        for number, (parameter, held) in enumerate(zip(self.parameters, self._held, strict=True)):
            grad = parameter.grad if number in self._sharding.used else None
            if grad is not None:
                if idle:
                    grad.to_local().add_(0.0)  # the zeros of workers without samples: -0 becomes +0
                grad.to_local().div_(float(self.settings.workers))
            if held is not None and grad is not None:
                held.to_local().add_(grad.to_local())
            parameter.grad = grad if held is None else held
        self._held = []
        self._buffers.enter(self.contexts[0].buffers)
        self._numpy = self._between.enter(keep=False)
        self.in_turns = False
        self._tell(SCRIPT)
        return True

    def _share(self) -> None:
        if self._group is None:
            self._commit(self._fresh)
            return
        orders = self._member.orders() if self._member is not None and self.rank == 0 else Orders()
        told = {
            "used": sorted(self._sharding.used),
            "contexts": {worker: context.packed() for worker, context in self._fresh.items()},
            "orders": tuple(orders),
        }
        try:
            found = [from_bytes(data) for data in self._group.gather(to_bytes(told))]
        except Broken:
            self._sharding.broken()
            raise
        self._sharding.used = {number for part in found for number in part["used"]}
        contexts = {w: Context.unpacked(c) for part in found for w, c in part["contexts"].items()}
        self._commit(contexts | self._fresh)
        self._orders = Orders(*found[0]["orders"])
