"""What the forecast says of a set of jobs: may they share, and what is gained."""

from __future__ import annotations

from bisect import bisect_left

from cotenant.model.jobs import Job
from cotenant.model.ports import Interval
from cotenant.model.view import View
from cotenant.policies.space.buckets import SlotKey

__all__ = ["LEVELS", "Bounds", "Rank", "Taste", "Verdicts", "labelled"]

LEVELS = 64
"""Gains are sorted into this many levels, so that a search can skip to the best one occupied:
enough that few slots share one."""

Rank = tuple[float, SlotKey]
"""Gain, negated, and the slot: sorts the best first, ties by what the slot is."""


def _level(gain: float) -> int:
    """0 for the best gains, LEVELS - 1 for those near nothing or below."""
    return LEVELS - 1 - min(LEVELS - 1, max(0, int(gain * LEVELS)))


_LESS = "\n"
"""Ends the labels of opportunistic jobs; no model's name does."""


def labelled(job: Job) -> str:
    """A job's model, with a mark where the job is opportunistic: what is judged by class is known by this."""
    return job.model if job.job_class == "guaranteed" else job.model + _LESS


class Bounds:
    """What is asked of a set; see ``policies.colocate``. Two are the same only if they are one object.

    ``less_doubt`` is ``doubt`` for opportunistic jobs, if it is another: then sets are judged by class.
    """

    __slots__ = ("by_class", "doubt", "guest_s", "less_doubt", "min_gain", "min_speed")

    def __init__(
        self,
        min_speed: float,
        min_gain: float,
        guest_s: float,
        doubt: float = 1.0,
        less_doubt: float | None = None,
    ) -> None:
        self.min_speed, self.min_gain, self.guest_s, self.doubt = min_speed, min_gain, guest_s, doubt
        self.less_doubt = doubt if less_doubt is None else less_doubt
        self.by_class = self.less_doubt != doubt

    def label(self, job: Job) -> str:
        """By what a job is known here: its model, and its class if that matters."""
        return labelled(job) if self.by_class else job.model

    def verdicts(self, view: View) -> Verdicts:
        """Verdicts by these bounds."""
        return Verdicts(view, self)


class Taste:
    """What is known of one model: which slots suit it, as bit sets over slots.

    Attributes
    ----------
    judged : int
        Slots looked at.
    fine : int
        Those where nobody falls below the floor: enough for a short guest.
    worth : int
        Those where the gain suffices, too.
    bands : list of int
        The fine ones by level of gain, best first; no band is empty.
    ranks : dict of int to Rank
        Of the fine ones.
    """

    __slots__ = ("_levels", "bands", "fine", "judged", "model", "ranks", "worth")

    def __init__(self, model: str) -> None:
        self.model = model
        self.judged = self.fine = self.worth = 0
        self.bands: list[int] = []
        self._levels: list[int] = []
        self.ranks: dict[int, Rank] = {}

    def accept(self, slot: int, gain: float, key: SlotKey, *, worth: bool) -> None:
        """A slot is fine."""
        bit, level = 1 << slot, _level(gain)
        self.fine |= bit
        if worth:
            self.worth |= bit
        self.ranks[slot] = (-gain, key)
        at = bisect_left(self._levels, level)
        if at < len(self._levels) and self._levels[at] == level:
            self.bands[at] |= bit
        else:
            self._levels.insert(at, level)
            self.bands.insert(at, bit)

    def forget(self, slot: int) -> None:
        """A slot is to be looked at anew."""
        bit = 1 << slot
        self.judged &= ~bit
        if not self.fine & bit:
            return
        self.fine ^= bit
        self.worth &= ~bit
        del self.ranks[slot]
        at = next(i for i, band in enumerate(self.bands) if band & bit)
        self.bands[at] ^= bit
        if not self.bands[at]:
            del self.bands[at], self._levels[at]

    def best(self, slots: int) -> list[tuple[Rank, int]]:
        """Of some fine slots, those of the best band, best first, each with its rank."""
        for band in self.bands:
            bits = band & slots
            if bits:
                if not bits & (bits - 1):
                    slot = bits.bit_length() - 1
                    return [(self.ranks[slot], slot)]
                return sorted(self._ranked(bits))
        return []

    def _ranked(self, bits: int) -> list[tuple[Rank, int]]:
        found = []
        while bits:
            bit = bits & -bits
            bits ^= bit
            slot = bit.bit_length() - 1
            found.append((self.ranks[slot], slot))
        return found


class Verdicts:
    """Verdicts on adding a model to a slot, each worked out once.

    Parameters
    ----------
    view : View
    bounds : Bounds
        Least speed of any member, how much of the doubt about it counts, and least gain of
        normalised throughput; short guests are excused from the last.

    Attributes
    ----------
    count : int
        Verdicts worked out so far: all of them are kept.
    """

    def __init__(self, view: View, bounds: Bounds) -> None:
        self._forecast = view.forecast
        self._types = [kind.name for kind in view.layout.types]
        self._min_speed, self._min_gain = bounds.min_speed, bounds.min_gain
        self._doubt, self._less_doubt = bounds.doubt, bounds.less_doubt
        self.count = 0
        self._tastes: dict[str, Taste] = {}
        self._sets: dict[tuple[int, tuple[str, ...]], tuple[float, dict[str, float]]] = {}

    def taste(self, model: str) -> Taste:
        """What is known of a model."""
        found = self._tastes.get(model)
        if found is None:
            found = self._tastes[model] = Taste(model)
        return found

    def judge(self, taste: Taste, bits: int, slots: list[SlotKey]) -> None:
        """Look at slots, given as bits, that were not looked at before."""
        taste.judged |= bits
        self.count += bits.bit_count()
        while bits:
            bit = bits & -bits
            bits ^= bit
            slot = bit.bit_length() - 1
            gain = self._gain(taste.model, slots[slot])
            if gain is not None:
                taste.accept(slot, gain, slots[slot], worth=gain >= self._min_gain)

    def ban(self, kind: int, models: tuple[str, ...]) -> None:
        """Never again this sorted set of models, whatever the forecast says."""
        self._sets[kind, models] = (0.0, dict.fromkeys(models, 0.0))

    def allow(self, kind: int, models: tuple[str, ...]) -> None:
        """Once more what the forecast says."""
        self._sets.pop((kind, models), None)

    def reconsider(self, kind: int, models: tuple[str, ...], slots: list[SlotKey]) -> None:
        """Forget what was judged of a set that was banned or allowed meanwhile."""
        for slot, (its, members, _) in enumerate(slots):
            if its != kind or not 0 <= len(models) - len(members) <= 1:
                continue
            rest = list(models)
            for model, _ in members:
                if model not in rest:
                    break
                rest.remove(model)
            else:
                for model in rest or self._tastes:
                    if model in self._tastes:
                        self._tastes[model].forget(slot)

    def accepts(self, model: str, key: SlotKey) -> bool:
        """Whether a model may join a slot, and what is gained is enough."""
        gain = self._gain(model, key)
        return gain is not None and gain >= self._min_gain

    def _gain(self, model: str, key: SlotKey) -> float | None:
        """Normalised throughput gained, a gang's loss counted on all its devices; None below the floor."""
        kind, members, _ = key
        present = tuple([m for m, _ in members])
        low, after = self._speeds(kind, tuple(sorted((*present, model))))
        if low < self._min_speed:
            return None
        before = self._speeds(kind, present)[1]
        return after[model] - sum(weight * (before[m] - after[m]) for m, weight in members)

    def _least(self, label: str, speed: Interval) -> float:
        doubt = self._less_doubt if label.endswith(_LESS) else self._doubt
        return speed.low if doubt == 1.0 else speed.mean - doubt * (speed.mean - speed.low)

    def _speeds(self, kind: int, models: tuple[str, ...]) -> tuple[float, dict[str, float]]:
        """Least speed at the low end, and each model's mean speed, in a sorted set of models."""
        found = self._sets.get((kind, models))
        if found is None:
            if len(models) == 1:
                found = (1.0, {models[0]: 1.0})
            else:
                name, means, low = self._types[kind], {}, 1.0
                plain = tuple([model.removesuffix(_LESS) for model in models])
                for model in dict.fromkeys(models):
                    at = models.index(model)
                    speed = self._forecast.co_speed(plain[at], plain[:at] + plain[at + 1 :], name)
                    means[model] = speed.mean
                    low = min(low, self._least(model, speed))
                found = (low, means)
            self._sets[kind, models] = found
        return found
