"""What to measure next: every set in turn, runs alone in between, then what is still uncertain."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import msgspec

from cotenant.profiles.measure.estimate import estimate
from cotenant.profiles.measure.jobsfile import MeasureFile
from cotenant.profiles.measure.records import Repeat

__all__ = ["Schedule", "all_sets"]

_TRIES = 2
"""A set that failed so often is not tried again."""
_HOPELESS = ("no steps", "cannot start")
"""What is not tried again: the same would happen, after as long a wait."""
_APART = 12
"""Measurements between two repeats of one set, where there are other sets to repeat."""
Jobs = tuple[str, ...]


def all_sets(file: MeasureFile) -> list[Jobs]:
    """The sets of two and three jobs that a file asks for, each sorted, none twice."""
    settings = file.settings
    names = [job.name for job in file.jobs]
    pairs: list[Jobs] = []
    if settings.pairs == "all":
        pairs = list(itertools.combinations(names, 2))
        if settings.self_pairs:
            pairs += [(name, name) for name in names]
    elif isinstance(settings.pairs, list):
        pairs = list(settings.pairs)
    if isinstance(settings.triples, int):
        possible = list(itertools.combinations(sorted(names), 3))
        drawn = random.Random(f"triples {settings.seed}")
        triples: list[Jobs] = list(drawn.sample(possible, min(settings.triples, len(possible))))
    else:
        triples = list(settings.triples)
    return list(dict.fromkeys(tuple(sorted(group)) for group in [*pairs, *triples]))


class Next(msgspec.Struct, frozen=True):
    """A set to measure, and why, in words for the progress line."""

    jobs: Jobs
    reason: str


class Schedule:
    """Chooses the next set from what was measured so far.

    Runs alone are spread over the whole time: before a co-run every job of it must have run
    alone no longer than ``solo_every`` ago, and at the end each runs alone once more.

    Parameters
    ----------
    file : MeasureFile
    session : int
        Times are compared within it alone.
    retry : bool
        Whether jobs and sets that failed in earlier sessions are tried again.
    """

    def __init__(self, file: MeasureFile, session: int, *, retry: bool = False) -> None:
        self.sets = all_sets(file)
        self._retry = retry
        self._settings, self._session = file.settings, session
        self._solo_every = file.settings.seconds("solo_every")
        self._names = [job.name for job in file.jobs]
        self._orders: dict[int, list[Jobs]] = {}

    def _order(self, number: int) -> list[Jobs]:
        """The sets, shuffled anew for each round."""
        if number not in self._orders:
            order = list(self.sets)
            random.Random(f"order {self._settings.seed} {number}").shuffle(order)
            self._orders[number] = order
        return self._orders[number]

    def next(self, repeats: Sequence[Repeat], now_s: float, left_s: float) -> Next | None:
        """The next set; None when all is known well enough.

        Parameters
        ----------
        repeats : sequence of Repeat
            Everything measured so far.
        now_s : float
            Since the session began.
        left_s : float
            Of the budget; near its end nothing is begun that needs more.
        """
        if left_s <= 0:
            return None
        dead = self._dead(repeats)
        step_s = self._settings.seconds("window") + self._settings.seconds("settle")
        stale = self._stale(repeats, now_s, step_s)
        wanted = self._settings.min_repeats
        last = [n for n in self._names if n not in dead and (n in stale or self._alone(repeats, n) < wanted)]
        doubtful = self._doubtful(repeats)
        last.sort(key=lambda name: name in doubtful)
        if left_s > len(last) * step_s * 1.5:
            target = self._target(repeats, dead)
            if target is not None:
                for name in dict.fromkeys(target):
                    if self._age(repeats, name, now_s) > self._solo_every:
                        return Next((name,), f"{name} alone")
                return Next(target, " + ".join(target))
        return Next((last[0],), f"{last[0]} alone once more") if last else None

    def _alone(self, repeats: Sequence[Repeat], name: str) -> int:
        return sum(1 for r in repeats if r.jobs == (name,) and r.members)

    def _target(self, repeats: Sequence[Repeat], dead: set[str]) -> Jobs | None:
        settings = self._settings
        done = dict.fromkeys(self.sets, 0)
        failed = dict(done)
        for repeat in repeats:
            if repeat.jobs in done:
                done[repeat.jobs] += bool(repeat.members)
                if self._counts(repeat):
                    failed[repeat.jobs] += any(failure.what != "no time" for failure in repeat.failures)
        alive = {s for s in self.sets if failed[s] < _TRIES and dead.isdisjoint(s)}
        doubtful = self._doubtful(repeats)
        for number in range(settings.min_repeats):
            open_sets = [jobs for jobs in self._order(number) if jobs in alive and done[jobs] <= number]
            if open_sets:  # the sets of a job that has just failed wait for the others
                return min(open_sets, key=lambda jobs: not doubtful.isdisjoint(jobs))
        found = estimate(repeats, disturbed_pct=settings.disturbed_pct)
        widths = {
            jobs: found[jobs].width_pct
            for jobs in sorted(alive)
            if done[jobs] < settings.max_repeats and found[jobs].width_pct > settings.target_pct
        }
        # Repeats of one set in a row would share what happens to the machine just then.
        recent = {repeat.jobs for repeat in repeats[-_APART:]}
        ready = [jobs for jobs in widths if jobs not in recent] or list(widths)
        return max(ready, key=lambda jobs: widths[jobs]) if ready else None

    def _failures(self, repeats: Sequence[Repeat]) -> dict[str, list[Repeat]]:
        """Of each job: its runs alone that failed since it last ran alone."""
        failed: dict[str, list[Repeat]] = {name: [] for name in self._names}
        for repeat in repeats:
            if len(repeat.jobs) == 1 and repeat.jobs[0] in failed:
                before = failed[repeat.jobs[0]]
                if not repeat.failures:
                    failed[repeat.jobs[0]] = []
                elif self._counts(repeat):
                    failed[repeat.jobs[0]] = [*before, repeat]
        return failed

    def _counts(self, repeat: Repeat) -> bool:
        """Whether a failure speaks against another try."""
        return not self._retry or repeat.session == self._session

    def skipped(self, repeats: Sequence[Repeat]) -> dict[str, str]:
        """Jobs that are not tried again, with the last failure of each in words."""
        late = set(self.put_off(repeats))
        return {
            name: f"{found[-1].failures[0].what}: {found[-1].failures[0].detail}"
            for name, found in self._failures(repeats).items()
            if name in self._dead(repeats) - late
        }

    def put_off(self, repeats: Sequence[Repeat]) -> list[str]:
        """Jobs that did not come to a step in what the budget of this session left them."""
        return [
            name
            for name, found in self._failures(repeats).items()
            if any(r.session == self._session and r.failures[0].what == "no time" for r in found)
        ]

    def _doubtful(self, repeats: Sequence[Repeat]) -> set[str]:
        return {name for name, found in self._failures(repeats).items() if found}

    def _dead(self, repeats: Sequence[Repeat]) -> set[str]:
        """Jobs that failed alone, twice, and never ran alone in between, or have no hope to run."""
        dead = set(self.put_off(repeats))
        for name, found in self._failures(repeats).items():
            what = [r.failures[0].what for r in found if r.failures[0].what != "no time"]
            if len(what) >= _TRIES or any(one in _HOPELESS for one in what):
                dead.add(name)
        return dead

    def _age(self, repeats: Sequence[Repeat], name: str, now_s: float) -> float:
        for repeat in reversed(repeats):
            if repeat.session == self._session and repeat.jobs == (name,) and repeat.members:
                return now_s - repeat.at_s
        return float("inf")

    def _stale(self, repeats: Sequence[Repeat], now_s: float, step_s: float) -> list[str]:
        """Jobs that ran beside others well after they last ran alone."""
        last_alone: dict[str, float] = {}
        last_beside: dict[str, float] = {}
        for repeat in repeats:
            if repeat.session == self._session and repeat.members:
                for name in repeat.jobs:
                    (last_alone if len(repeat.jobs) == 1 else last_beside)[name] = repeat.at_s
        return [
            name
            for name, at in last_beside.items()
            if at - last_alone.get(name, float("-inf")) > min(4 * step_s, self._solo_every / 4)
        ]
