"""The rules of EasyScale's artifact, restated, on the same jobs and times as ``cotenant reproduce easyscale``.

::

    COTENANT_EASYSCALE=folder python -m bench.easyscale_rules [--sync 0.77]

Tells apart what of a difference to the published figures comes from the times of mini-batches, which the artifact does
not hold, and what from the scheduler. As in the artifact: rounds of 60 s; 20 s once for each job; a newcomer gets one
device of the slowest type it may use; a running job proposes, for each type, a placement with more of that type and no more of
the others, and keeps the others beside it; the waste of one type counts as none; nobody gives anything back.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cotenant.experiments.easyscale import ARTIFACT
from cotenant.experiments.elasticjobs import Elastic, drawn, read
from cotenant.experiments.minibatches import JOBS, SYNC, TYPES, mini_batch_s
from cotenant.model.workers import divide

__all__ = ["main", "simulate"]

_GPUS = (32, 16, 16)
_ROUND_S, _RESTART_S, _MOST_WASTE = 60.0, 20.0, 0.3
Counts = tuple[int, ...]


class Choice(NamedTuple):
    """A placement: devices by type, performance, share wasted, and time of a step of all workers."""

    counts: Counts
    performance: float
    waste_share: float
    step_s: float


class Proposal(NamedTuple):
    """More of one type for a running job."""

    gain: float
    kind: int
    more: int
    choice: Choice


class _Running:
    """A job and how far it is."""

    def __init__(self, job: Elastic, scheme: str, sync: float) -> None:
        self.submit_s, self.workers = job.submit_s, job.workers
        self.times = tuple(
            mini_batch_s(job.application, job.batch, kind, neutral=job.neutral, sync=sync) for kind in TYPES
        )
        preferred = TYPES.index(job.preferred)
        self.kinds = (0, 1, 2) if scheme == "hetero" and job.neutral else (preferred,)
        self.steps = job.epochs * JOBS[job.application].samples / (job.batch * job.workers)
        self.restart_s = _RESTART_S
        self.choice: Choice | None = None
        self.end_s: float | None = None

    def go_on(self, now: float) -> None:
        """One round."""
        if self.choice is None:
            return
        lost = min(self.restart_s, _ROUND_S)
        self.restart_s -= lost
        need_s = self.steps * self.choice.step_s
        if lost < _ROUND_S and need_s <= _ROUND_S - lost:
            self.end_s, self.choice = now + lost + need_s, None
        else:
            self.steps -= (_ROUND_S - lost) / self.choice.step_s


@functools.cache
def _choices(times: tuple[float, ...], workers: int, kinds: tuple[int, ...]) -> tuple[Choice, ...]:
    """All placements without devices that have no worker, best first."""
    slowest, found = max(times), []
    most = [min(_GPUS[i], workers) if i in kinds else 0 for i in range(3)]
    for counts in itertools.product(*(range(n + 1) for n in most)):
        used = [i for i in range(3) if counts[i]]
        if not used or sum(counts) > workers:
            continue
        division = divide(tuple((counts[i], slowest / times[i]) for i in used), workers)
        if 0 in division.each:
            continue
        step_s = max(times[i] * each for i, each in zip(used, division.each, strict=True))
        if len(used) == 1:
            found.append(Choice(counts, counts[used[0]] * slowest / times[used[0]], 0.0, step_s))
        else:
            found.append(Choice(counts, division.performance, division.waste_share, step_s))
    return tuple(sorted(found, key=lambda choice: -choice.performance))


def _proposals(job: _Running, now: Choice) -> list[Proposal]:
    best: dict[int, Proposal] = {}
    for choice in _choices(job.times, job.workers, job.kinds):
        if choice.performance < now.performance:
            break
        if choice.waste_share > _MOST_WASTE or sum(choice.counts) > 2 * sum(now.counts):
            continue
        for kind in range(3):
            more = choice.counts[kind] - now.counts[kind]
            others = all(choice.counts[k] <= now.counts[k] for k in range(3) if k != kind)
            if more <= 0 or not others or more > sum(now.counts):
                continue
            counts = tuple(n + more * (k == kind) for k, n in enumerate(now.counts))
            gain = (choice.performance / now.performance - 1.0) / more
            if kind not in best or gain > best[kind].gain + 1e-12:
                best[kind] = Proposal(gain, kind, more, choice._replace(counts=counts))
    return list(best.values())


def _allot(active: list[_Running]) -> None:
    """Newcomers, then increments by gain for each device."""
    free = list(_GPUS)
    proposals = []
    for number, job in enumerate(active):
        if job.choice is not None:
            free = [f - n for f, n in zip(free, job.choice.counts, strict=True)]
            proposals += [(-p.gain, number, p) for p in _proposals(job, job.choice)]
    for job in active:
        if job.choice is None:
            single = [c for c in _choices(job.times, job.workers, job.kinds) if sum(c.counts) == 1][-1]
            if all(f >= n for f, n in zip(free, single.counts, strict=True)):
                job.choice = single
                free = [f - n for f, n in zip(free, single.counts, strict=True)]
    served: set[int] = set()
    for _, number, proposal in sorted(proposals, key=lambda p: p[:2]):
        if number not in served and free[proposal.kind] >= proposal.more:
            free[proposal.kind] -= proposal.more
            active[number].choice = proposal.choice
            served.add(number)


def _one_at_a_time(active: list[_Running]) -> None:
    for job in active[:1]:
        job.choice = Choice((), 1.0, 0.0, job.times[job.kinds[0]])


def simulate(jobs: Sequence[Elastic], scheme: str, sync: float = SYNC) -> tuple[float, float]:
    """Mean completion time and makespan of a scheme: ``yarn``, ``homo`` or ``hetero``."""
    running = [_Running(job, scheme, sync) for job in jobs]
    now = 0.0
    while any(job.end_s is None for job in running):
        for job in running:
            job.go_on(now)
        now += _ROUND_S
        active = [job for job in running if job.submit_s <= now and job.end_s is None]
        (_one_at_a_time if scheme == "yarn" else _allot)(active)
    lengths = [job.end_s - job.submit_s for job in running if job.end_s is not None]
    return sum(lengths) / len(lengths), now - _ROUND_S


def main(argv: Sequence[str] | None = None) -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m bench.easyscale_rules", description=__doc__)
    parser.add_argument("--sync", type=float, default=SYNC)
    options = parser.parse_args(argv)
    folder = os.environ.get(ARTIFACT)
    jobs = read(Path(folder)) if folder else drawn(0)
    print("| scheme | mean completion time (s) | makespan (s) |\n| --- | ---: | ---: |")
    for scheme in ("yarn", "homo", "hetero"):
        jct_s, makespan_s = simulate(jobs, scheme, options.sync)
        print(f"| {scheme} | {jct_s:,.0f} | {makespan_s:,.0f} |")


if __name__ == "__main__":
    main()
