"""Sparse gradients, as those of ``Embedding(sparse=True)``: rows, summed in the order of the workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cotenant.elastic.gradients import Staging
from cotenant.elastic.rings import Rings
from cotenant.errors import InputError

__all__ = ["Rows", "WithRows", "tables"]

Rows = Mapping[int, Sequence[Any]]
"""For each worker, the sparse gradient of each table; None where its turn gave none."""


def tables(model: Any) -> frozenset[int]:
    """The parameters (by ``id``) that a module says it gives sparse gradients."""
    import torch

    found = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    return frozenset(
        id(module.weight) for module in model.modules() if isinstance(module, found) and module.sparse
    )


def _summed(grads: Sequence[Any]) -> Any:
    """Each row once, sorted, summed in the order in which it comes; ``coalesce`` sums in another one."""
    import torch

    first = grads[0]
    rows, places = torch.unique(torch.cat([grad._indices()[0] for grad in grads]), return_inverse=True)
    values = first._values().new_zeros(len(rows), *first.shape[1:])
    values.index_add_(0, places, torch.cat([grad._values() for grad in grads]))
    return torch.sparse_coo_tensor(rows[None], values, first.shape, is_coalesced=True, check_invariants=False)


class WithRows:
    """Takes the gradients of tables after each turn, and leaves the others to another staging.

    Each turn's rows are summed by themselves. All processes are given those of all workers, and sum them in the
    order of the workers: so rows are sorted, each is there once, and is summed from worker 0 on, in every order
    of the run. A table with no row in any turn has no gradient.

    Parameters
    ----------
    parameters : sequence of Parameter
    numbers : sequence of int
        Which of them are tables.
    others : Staging or Rings
        For the rest of them.
    """

    def __init__(
        self, parameters: Sequence[Any], numbers: Sequence[int], others: Staging | Rings | WithRows
    ) -> None:
        self.parameters = parameters
        self._numbers, self._others = numbers, others
        self._tables = [parameters[n] for n in numbers]
        self._rows: dict[int, Sequence[Any]] = {}
        self._held: list[Any] = []

    @property
    def apart(self) -> bool:
        """See ``Staging``."""
        return self._others.apart

    @apart.setter
    def apart(self, value: bool) -> None:
        self._others.apart = value

    @property
    def failed(self) -> bool:
        """See ``Staging``."""
        return self._others.failed

    def begin(self) -> None:
        """Set aside what is there before the first turn."""
        self._others.begin()
        self._held = self._take()
        self._rows = {}

    def give_back(self) -> None:
        """As before ``begin``."""
        self._others.give_back()
        for table, held in zip(self._tables, self._held, strict=True):
            table.grad = held

    def ended(self, worker: int) -> None:
        """A worker's turn is over.

        Raises
        ------
        InputError
            If a table got a dense gradient.
        """
        taken = self._take()
        for number, grad in zip(self._numbers, taken, strict=True):
            if grad is not None and not grad.is_sparse:
                raise InputError(
                    f"parameter {number} of shape {tuple(grad.shape)} is the table of an embedding with sparse=True, but"
                    f" its gradient in a turn of logical worker {worker} is dense: its weight is used elsewhere, too; use"
                    " sparse=False"
                )
        self._rows[worker] = [None if grad is None else _summed([grad]) for grad in taken]
        self._others.ended(worker)

    def rows(self) -> Rows:
        """Those of this process's workers, on the CPU, to be sent."""
        return {w: [None if t is None else t.cpu() for t in several] for w, several in self._rows.items()}

    def add_rows(self, found: Sequence[Rows]) -> None:
        """Take those of all processes."""
        for rows in found:
            self._rows.update(rows)

    def used(self) -> list[bool]:
        """Which parameters have got a gradient in this process's turns."""
        touched = [any(rows[n] is not None for rows in self._rows.values()) for n in range(len(self._tables))]
        return self._whole(self._others.used(), touched)

    def arrival(self, worker: int) -> tuple[int, ...]:
        """See ``Staging``."""
        return self._others.arrival(worker)

    def total(self) -> list[Any]:
        """The sums over all workers of all processes.

        Raises
        ------
        Broken
        """
        return self._whole(self._others.total(), [self._joined(n) for n in range(len(self._tables))])

    def _joined(self, number: int) -> Any:
        found = [self._rows[worker][number] for worker in sorted(self._rows)]
        found = [grad.to(self._tables[number].device) for grad in found if grad is not None]
        return _summed(found) if found else None

    def finish(self, sums: Sequence[Any], workers: int) -> None:
        """Set every ``grad`` to what was held plus the mean; None where nobody has a gradient."""
        mine = set(self._numbers)
        self._others.finish([one for n, one in enumerate(sums) if n not in mine], workers)
        for number, table, held in zip(self._numbers, self._tables, self._held, strict=True):
            total = sums[number]
            if total is None:
                table.grad = held
                continue
            mean = _summed([total.to(table.device)]) / float(workers)
            table.grad = mean if held is None else _summed([held, mean])
        self._held, self._rows = [], {}

    def _take(self) -> list[Any]:
        taken = [table.grad for table in self._tables]
        for table in self._tables:
            table.grad = None
        return taken

    def _whole(self, others: Sequence[Any], tables: Sequence[Any]) -> list[Any]:
        """Put together by number of the parameter."""
        rest, rows, mine = iter(others), iter(tables), set(self._numbers)
        return [next(rows) if n in mine else next(rest) for n in range(len(self.parameters))]
