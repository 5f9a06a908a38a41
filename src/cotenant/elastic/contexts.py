"""What belongs to one logical worker: its random numbers and its buffers, swapped at every turn."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from cotenant.runtime import randomness

__all__ = ["Buffers", "Context", "use"]


def use(generator: Any) -> None:
    """Make a bit generator the one from which ``numpy.random`` draws."""
    import numpy as np

    swap: Any = getattr(np.random, "set_bit_generator")  # noqa: B009 - NumPy's types leave it out
    swap(generator)


class Context:
    """Random generators, buffers and notes of one logical worker, or the generators between turns.

    Attributes
    ----------
    buffers : dict of str to Tensor
        Those that any worker has changed so far, by name.
    notes : dict of str to float
        What the script noted in the worker's last turn.
    arrival : dict of str to tuple of int
        The order in which the first gradients arrived, if it counts: numbers of parameters, for each kind of inner loop.
    mark : mapping
        How far the worker is in its data, if that is not known from the step.
    """

    __slots__ = ("_cuda", "_numpy", "_python", "_torch", "arrival", "buffers", "mark", "notes")

    def __init__(self, python: Any, numpy: Any, torch: Any, cuda: Any) -> None:
        self._python, self._numpy, self._torch, self._cuda = python, numpy, torch, cuda
        self.buffers: dict[str, Any] = {}
        self.notes: dict[str, float] = {}
        self.arrival: dict[str, tuple[int, ...]] = {}
        self.mark: Mapping[str, Any] = {}

    @classmethod
    def seeded(cls, seed: int) -> Context:
        """Generators that all start from one 63-bit seed."""
        import numpy as np
        import torch

        cuda = None
        if torch.cuda.is_available():
            cuda = torch.Generator("cuda").manual_seed(seed).get_state()
        generator = torch.Generator().manual_seed(seed)
        return cls(random.Random(seed).getstate(), np.random.MT19937(seed), generator.get_state(), cuda)

    def enter(self, *, keep: bool) -> Any:
        """Make these the process's generators; returns the NumPy generator that now counts on.

        With ``keep`` this context stays as it is, so that the turn can be taken again.
        """
        import numpy as np
        import torch

        used = self._numpy
        if keep:
            used = np.random.MT19937(0)
            used.state = self._numpy.state
        random.setstate(self._python)
        use(used)
        torch.set_rng_state(self._torch)
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda)
        return used

    @classmethod
    def leave(cls, numpy: Any) -> Context:
        """The process's generators as they are now; ``numpy`` is what ``enter`` gave."""
        import torch

        cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
        return cls(random.getstate(), numpy, torch.get_rng_state(), cuda)

    def generators(self) -> dict[str, Any]:
        """States of the random generators by name: python, numpy, torch, cuda."""
        return {
            "python": self._python,
            "numpy": self._numpy.state,
            "torch": self._torch,
            "cuda": self._cuda,
        }

    def packed(self) -> dict[str, Any]:
        """The same as tensors, numbers and text."""
        import torch

        version, words, gauss = self._python
        return {
            "python": (version, torch.tensor(words), gauss),
            "numpy": randomness.plain(self._numpy.state),
            "torch": self._torch,
            "cuda": self._cuda,
            "buffers": self.buffers,
            "notes": self.notes,
            "arrival": self.arrival,
            "mark": self.mark,
        }

    @classmethod
    def unpacked(cls, kept: Mapping[str, Any]) -> Context:
        """What ``packed`` gave."""
        import numpy as np

        version, words, gauss = kept["python"]
        generator = np.random.MT19937(0)
        generator.state = randomness.rebuilt(kept["numpy"])
        context = cls((version, tuple(words.tolist()), gauss), generator, kept["torch"], kept["cuda"])
        context.buffers, context.notes = dict(kept["buffers"]), dict(kept["notes"])
        arrival = kept.get("arrival", {})
        # Written by earlier versions: of the one loop that they had.
        loops = arrival if isinstance(arrival, Mapping) else {"": arrival} if arrival else {}
        context.arrival = {name: tuple(order) for name, order in loops.items()}
        context.mark = kept.get("mark", {})
        return context

    def marked(self, mark: Mapping[str, Any]) -> Context:
        """The same of a worker that has had no turn, further in its data."""
        context = Context(self._python, self._numpy, self._torch, self._cuda)
        context.buffers, context.arrival, context.mark = self.buffers, self.arrival, mark
        return context


class Buffers:
    """The buffers of a model, of which each logical worker has its own.

    Only those that were ever changed in a turn are swapped: masks and tables cost nothing. A change is
    seen by PyTorch's version counter; kernels of normalisation do not count, so their buffers are
    always swapped, and a module's buffers are swapped together.
    """

    def __init__(self, model: Any) -> None:
        import torch

        self._slots: dict[str, tuple[Any, str]] = {}
        seen: set[int] = set()
        for path, module in model.named_modules():
            for key, tensor in module._buffers.items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    self._slots[f"{path}.{key}" if path else key] = (module, key)
        self._base = {name: self._tensor(name).clone() for name in self._slots}
        norms = (torch.nn.modules.batchnorm._NormBase,)
        self._changing = {name for name, (module, _) in self._slots.items() if isinstance(module, norms)}
        self._before: list[tuple[int, int]] = []

    def _tensor(self, name: str) -> Any:
        module, key = self._slots[name]
        return module._buffers[key]

    def common(self) -> Iterator[tuple[str, Any]]:
        """Those of which every process has the same, by name; None for one that each worker has its own of."""
        for name in self._slots:
            yield name, None if name in self._changing else self._tensor(name)

    def enter(self, saved: Mapping[str, Any]) -> None:
        """Fill the model's buffers with a worker's."""
        import torch

        self._changing.update(saved)
        with torch.no_grad():
            for name in sorted(self._changing):
                self._tensor(name).copy_(saved.get(name, self._base[name]))
        self._before = self._marks()

    def leave(self) -> dict[str, Any]:
        """Copies of those that have ever changed."""
        changed = set()
        for (module, _), before, now in zip(self._slots.values(), self._before, self._marks(), strict=True):
            if before != now:
                changed.add(id(module))
        if changed:
            self._changing.update(name for name, (one, _) in self._slots.items() if id(one) in changed)
        return {name: self._tensor(name).detach().clone() for name in sorted(self._changing)}

    def _marks(self) -> list[tuple[int, int]]:
        tensors = (self._tensor(name) for name in self._slots)
        return [(id(tensor), tensor._version) for tensor in tensors]
