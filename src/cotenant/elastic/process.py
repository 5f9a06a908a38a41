"""One process of an elastic run: its turns, and its part in the exchange after them."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping
from typing import Any

from cotenant.elastic import scan
from cotenant.elastic.contexts import Context, use
from cotenant.elastic.exchange import Broken, Group, from_bytes, to_bytes
from cotenant.elastic.gradients import share
from cotenant.elastic.heirs import finish, inherit
from cotenant.elastic.held import Held
from cotenant.elastic.hung import END, EXCHANGE, SCRIPT, TURNS
from cotenant.elastic.members import Finished, Orders, Retired
from cotenant.elastic.parts import WHOLE, Aside, Batches, Given, Part, Record
from cotenant.elastic.reduction import Stages, Stagings
from cotenant.elastic.sampling import NOTHING, Data, Mark
from cotenant.elastic.settings import Settings
from cotenant.elastic.state import Place
from cotenant.elastic.transfer import catch_up
from cotenant.errors import InputError
from cotenant.runtime import contents
from cotenant.runtime.run import SUSPENDED, Suspended

__all__ = ["Process", "Settings"]

_TERMINATED = 143  # of a process that was stopped and has nowhere to save


class Process(Held):
    """This process and what it holds of the run.

    Attributes
    ----------
    size : int
        Processes.
    joined : bool
        It has the state of the run.
    given : Given, optional
        All of a step, for others that may lack it or for this process itself.
    worker : int, optional
        Whose turn it is.
    broken : bool
        A process was lost after this one had all of a step.
    part : int
        Inner loops of this step that are over.
    record : Record, optional
        What somebody lacks who comes now, if one of them is over.
    replay : list of Given
        Of inner loops that were over when this process came, and its script has not come to.
    """

    def __init__(
        self,
        settings: Settings,
        loader: Data,
        model: Any,
        objects: contents.Objects,
        parts: Mapping[str, Mapping[str, Any]],
    ) -> None:
        super().__init__(settings, loader, model, objects, parts)
        self.size = 1
        self.joined = False
        self.given: Given | None = None
        self.broken = False
        self.part = 0
        self.record: Record | None = None
        self._earlier: list[Context] = []
        self.replay: list[Given] = []
        self._part = WHOLE
        self._aside = Aside(())
        self.worker: int | None = None
        self._group: Group | None = None
        self._staging: Stages
        self._stagings = Stagings(
            settings, self.parameters, self.tables, lambda part: self.contexts[0].arrival.get(part, ())
        )
        self._fresh: dict[int, Context] = {}
        self._notes: dict[str, float] = {}
        self._orders = Orders()
        self._ordered = 0
        self._batches = Batches(loader)
        scan.watch(self, self.optimizers.values())

    # -- life ------------------------------------------------------------------------

    def open(self) -> None:
        """Load saved state, join the others, and make ready for the first turn."""
        self._awake()
        if self._member is None:
            self.load()
            self._settle(None)
            if self.settings.folder is not None and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                with contextlib.suppress(ValueError):  # not in the main thread
                    signal.signal(signal.SIGTERM, self._terminate)
        else:
            contents.check_loadable(self.objects.small(), "an object given to run.keep()")
            if self._member.newest():
                # The others train meanwhile; at the first exchange they would wait for memory to be made.
                self._stagings.memory.warm(self.dense, self.settings.order)
            try:
                self._join()
            except Finished:
                raise Retired(0) from None
        self.joined = True

    def close(self) -> None:
        """The last step is done."""
        self._tell(END)
        if self._group is not None:
            self._group.close()
            self._group = None

    def _terminate(self, *_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whoever asks twice does not want to wait
        self.stop()

    def stop(self) -> None:
        """Save and leave at a step boundary, with all others."""
        if self._member is None:
            self._orders = self._orders._replace(stop=1)
        else:
            self._member.stop()

    def leave_loop(self, *, save: bool) -> None:
        """The script has left the loop over the steps early, behind a step that is to be saved, or not."""
        self._tell(END)
        if save:
            self.advance()
            self.save()

    def advance(self) -> None:
        """The script has applied the gradients."""
        step, epoch, index = self.place
        whole = self.ends_epoch()
        self.place = Place(step + 1, epoch + whole, 0 if whole else index + 1)
        self.part, self.record = 0, None
        self._batches.stepped(epoch=whole)
        self._pass()

    def _pass(self) -> None:
        if self._member is not None and self.rank == 0 and self.size > 1:
            self._member.passed(self.place.step)

    def boundary(self, *, end: bool) -> bool:
        """Between two steps: save, leave, meet the others anew; True if there is nothing more to do."""
        every, orders = self.settings.every_steps, self._orders
        due = bool(every) and self.place.step % every == 0
        if end or orders.stop or due or orders.checkpoint > self._ordered:
            self.save()
        self._ordered = max(self._ordered, orders.checkpoint)
        if orders.stop and not end:
            if self._all_saved():
                self.close()
                raise Suspended(_TERMINATED if self.settings.folder is None else SUSPENDED)
            self.broken = True  # the first has not lived to save: they meet anew, and stop after another step
        self._check_threads()
        if self._member is not None and self.broken:
            try:
                self._join()
            except Finished:
                return True
        if self._member is not None and end:
            finish(self, self._member, self._join)
        elif self._member is not None and orders.generation > self._member.generation:
            self._join()
        return False

    # -- turns -----------------------------------------------------------------------

    def begin_turns(self, part: Part = WHOLE) -> None:
        """The process's own generators make room for the workers'."""
        if self.part and self.broken:  # between two loops of a step
            self._join()
        self._between = Context.leave(self._numpy)
        self.in_turns = True
        if not self.part:
            self.begun = self.marks
        self._tell(TURNS)
        if part != self._part:
            self._part = part
            self._choose()
        self._set_aside()

    def turns(self) -> Iterator[Any]:
        """The batches of this process's workers, each yielded within its worker's context."""
        keep = self.size > 1 or not self._staging.apart
        for worker in self._mine:
            if self.live(worker):
                use(self._scratch)
                batch, mark = self._next(worker)
                if batch is NOTHING:
                    self._fresh[worker] = self.contexts[worker].marked(mark)
                else:
                    yield from self._turn(worker, batch, mark, keep)
            self._staging.ended(worker)

    def _turn(self, worker: int, batch: Any, mark: Mark, keep: bool) -> Iterator[Any]:
        self.worker, before = worker, self.contexts[worker]
        used = before.enter(keep=keep)
        self._buffers.enter(self.contexts[0].buffers if self.settings.order == "ddp" else before.buffers)
        self._notes = dict(before.notes) if self.part else {}
        yield batch
        scan.check_gradients(self.parameters, self.tables)
        after = Context.leave(used)
        after.buffers, after.notes, after.mark = self._buffers.leave(), self._notes, mark
        seen = before.arrival.get(self._part.name) or self._staging.arrival(worker)
        after.arrival = before.arrival | ({self._part.name: seen} if seen else {})
        self._fresh[worker] = after

    def note(self, values: dict[str, float]) -> None:
        """Numbers of the worker whose turn it is."""
        if not self.in_turns:
            raise InputError("note() outside of the inner loop: numbers belong to a worker's turn")
        self._notes.update(values)

    def _next(self, worker: int) -> tuple[Any, Mark]:
        return self._batches.next(self.place, self._mine, self.begun, worker, self._part)

    def end_turns(self) -> bool:
        """Exchange; False if the turns must be taken again, by others."""
        if self._staging.failed:
            self._stagings.apart = True
            self._put_back()
            self._staging.apart = True
            self._again()
            return False
        self._tell(EXCHANGE)
        sums = self._sum()
        if sums is None:
            # Not where Broken is handled: as long as it is, what it holds keeps the group's connections open.
            sums = self._recover()
        if sums is None:
            return False
        self._finish(sums)
        return True

    def replayed(self) -> bool:
        """Whether this loop was over before this process came: its gradients are there without turns."""
        if not self.replay:
            return False
        given = self.replay.pop(0)
        self._commit(given.contexts)
        self._finish(given.sums)
        return True

    def _finish(self, sums: list[Any]) -> None:
        """Gradients are the means of all workers; the script goes on."""
        scan.check_sums(sums, self._part.of(self.parameters), self.place.step)
        if self._part is not WHOLE and self.size > 1:
            if self.record is None:
                self.record = Record(self.pack(self._earlier))
                self._earlier = []
            self.record.add(sums, self.contexts)
        self._staging.finish(sums, self.settings.workers)
        self._aside.give_back()
        self._buffers.enter(self.contexts[0].buffers)
        self._numpy = self._between.enter(keep=False)
        self.in_turns = False
        self.part += 1
        self._tell(SCRIPT)

    def _sum(self) -> list[Any] | None:
        """The sums of all workers' gradients; None if a process was lost before this one had them."""
        if self._group is None or self.size == 1:
            self._commit(self._fresh)
            if self._member is not None:
                self._orders = self._member.orders()
            return self._staging.total()
        try:
            sums = self._exchange(self._group)
        except Broken:
            return None
        self._agree(sums)
        return sums

    def _recover(self) -> list[Any] | None:
        """Join the others again; the sums that one of them kept, or None if nobody has the step."""
        if self._member is not None:
            self._member.broken()
        self._put_back()
        try:
            self._join()
        except Finished:
            if self.given is None:
                raise Retired(0) from None
        given, self.given = self.given, None
        if given is None:
            self._again()
            return None
        self._set_aside()
        self._commit(given.contexts)
        return given.sums

    def _again(self) -> None:
        self._tell(TURNS)
        self._batches.again()
        self._set_aside()

    def _set_aside(self) -> None:
        self._staging.begin()
        self._aside.begin()
        self._fresh = {}

    def _put_back(self) -> None:
        self._staging.give_back()
        self._aside.give_back()

    def _exchange(self, group: Group) -> list[Any]:
        used = self._staging.used()
        packed = {worker: context.packed() for worker, context in self._fresh.items()}
        loop = (self.place.step, self.part, self._part.name)
        told = {"used": used, "contexts": packed, "loop": loop, "rows": self._staging.rows()}
        told["prints"] = self._replicas.prints(self.place.step)
        found = [from_bytes(data) for data in group.gather(to_bytes(told))]
        scan.check_loops([part["loop"] for part in found])
        self._replicas.check([part["prints"] for part in found], self.place.step)
        self._staging.add_rows([part["rows"] for part in found])
        sums = self._staging.total()
        contexts = {w: Context.unpacked(c) for part in found for w, c in part["contexts"].items()}
        self._commit(contexts | self._fresh)
        anywhere = [any(part["used"][n] for part in found) for n in range(len(used))]
        return [tensor if there else None for tensor, there in zip(sums, anywhere, strict=True)]

    def _commit(self, fresh: Mapping[int, Context]) -> None:
        if self.part == 0 and self._part is not WHOLE and self.size > 1:
            self._earlier = list(self.contexts)
        for worker, context in enumerate(self.contexts):
            if self.part == 0:
                context.notes = {}
            self.contexts[worker] = fresh.get(worker, context)
        self.loader.check(*self.place[1:], self.marks)

    def _agree(self, sums: list[Any]) -> None:
        """All have all of the step, or it is kept for those that may not."""
        import torch

        group, member = self._group, self._member
        if group is None or member is None:
            return
        told = torch.tensor(member.orders() if self.rank == 0 else Orders(), dtype=torch.int64)
        try:
            group.largest(told)
            self._orders = Orders(*told.tolist())
        except Broken:
            self.broken = True
            copies = [None if tensor is None else tensor.clone() for tensor in sums]
            self.given = Given(copies, dict(enumerate(self.contexts)))

    # -- generations -----------------------------------------------------------------

    def _join(self) -> None:
        """Become part of the next generation that holds."""
        member = self._member
        if member is None:
            raise InputError("a run without supervisor has one process")
        self._batches.again()
        while True:
            if self._group is not None:
                self._group.close()
                self._group = None
            group = member.join()
            if not member.handover:
                scan.check_size(group.size, self.settings.leaves)
            scan.check_devices(self._all, group.size)
            self._group = group
            try:
                catch_up(self, group)
            except Broken:
                member.broken()
                continue
            member.inside()
            if not member.handover:
                break
        self.broken, follows = False, self.joined and self.rank > 0
        self._settle(group)
        if follows and self.rank == 0:
            inherit(self, member)
        self._pass()

    def _settle(self, group: Group | None) -> None:
        self.rank, self.size = (0, 1) if group is None else (group.rank, group.size)
        self._see_threads()
        settings = self.settings
        shares = share(settings.leaves, self.size)
        first, end = shares[self.rank]
        self._mine = range(first * settings.turns, end * settings.turns)
        self._stagings.settle(shares, group)
        self._choose()

    def _choose(self) -> None:
        self._staging = self._stagings.choose(self._part)
        theirs = {id(parameter) for parameter in self._part.of(self.parameters)}
        self._aside = Aside([p for p in self.parameters if id(p) not in theirs])
