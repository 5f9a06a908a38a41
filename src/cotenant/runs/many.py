"""Several policies and seeds, side by side, with progress; an interrupt leaves valid results.

Each run is independent and seeded, so its log is the same with one worker or with many.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import msgspec

from cotenant.runs.config import RunConfig
from cotenant.runs.control import Control, on_interrupt
from cotenant.runs.prepare import Prepared, prepare
from cotenant.runs.single import Outcome, run_one
from cotenant.runs.spec import build_policy, parse_policy

__all__ = ["Task", "Watcher", "default_workers", "run_tasks"]

_POLL_S = 0.2
_GRACE_S = 5.0


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One policy with one seed, and the folder to write."""

    policy: str
    seed: int
    folder: str


class Watcher:
    """Hears what happens; the base class keeps silent."""

    def jobs_ended(self, total: int) -> None:
        """Jobs that ended so far, in all runs."""

    def run_ended(self, task: Task, outcome: Outcome) -> None:
        """A run came to its end."""

    def stopping(self) -> None:
        """An interrupt was heard."""


def run_tasks(
    config: RunConfig, prepared: Prepared, tasks: Sequence[Task], workers: int, watcher: Watcher
) -> tuple[list[Outcome], bool]:
    """Run all tasks.

    Returns
    -------
    outcomes : list of Outcome
        In the order of ``tasks``; a task that never began is ``pending``.
    interrupted : bool
    """
    workers = max(1, min(workers, len(tasks)))
    if workers == 1:
        return _in_this_process(prepared, tasks, watcher)
    return _Pool(config, tasks, workers, watcher).run()


def _pending(task: Task) -> Outcome:
    return Outcome(policy=task.policy, seed=task.seed, status="pending")


def _run(prepared: Prepared, task: Task, control: Control) -> Outcome:
    policy = build_policy(parse_policy(task.policy))
    return run_one(
        prepared, policy, label=task.policy, seed=task.seed, folder=Path(task.folder), control=control
    )


def _in_this_process(
    prepared: Prepared, tasks: Sequence[Task], watcher: Watcher
) -> tuple[list[Outcome], bool]:
    ended = 0

    def count(jobs: int) -> None:
        nonlocal ended
        ended += jobs
        watcher.jobs_ended(ended)

    control = Control(count)

    def stop() -> None:
        control.stop()
        watcher.stopping()

    outcomes = []
    with on_interrupt(stop):
        for task in tasks:
            if control.stopped:
                outcomes.append(_pending(task))
                continue
            outcome = _run(prepared, task, control)
            outcomes.append(outcome)
            watcher.run_ended(task, outcome)
    return outcomes, control.stopped


class _Pool:
    """Runs in processes of their own."""

    def __init__(self, config: RunConfig, tasks: Sequence[Task], workers: int, watcher: Watcher) -> None:
        self._config, self._tasks, self._workers, self._watcher = config, tasks, workers, watcher
        # Spawned, not forked: no threads or locks of this process are copied into a run.
        self._context = multiprocessing.get_context("spawn")
        self._stop = self._context.Event()
        self._counts: Any = self._context.RawArray("q", len(tasks))

    def run(self) -> tuple[list[Outcome], bool]:
        """Start all, wait for all."""
        outcomes = {task: _pending(task) for task in self._tasks}

        def stop() -> None:
            self._stop.set()
            self._watcher.stopping()

        with self._executor() as pool, on_interrupt(stop):
            futures = self._submit(pool)
            waiting = set(futures)
            while waiting:
                done, waiting = wait(waiting, timeout=_POLL_S, return_when=FIRST_COMPLETED)
                self._watcher.jobs_ended(sum(self._counts))
                for future in done:
                    task = futures[future]
                    outcomes[task] = self._outcome(task, future)
                    if outcomes[task].status != "pending":
                        self._watcher.run_ended(task, outcomes[task])
        return [outcomes[task] for task in self._tasks], self._stop.is_set()

    def _executor(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self._workers,
            mp_context=self._context,
            initializer=_begin_worker,
            initargs=(self._stop, self._counts),
        )

    def _submit(self, pool: ProcessPoolExecutor) -> dict[Future[Outcome], Task]:
        # Children inherit an ignored Ctrl-C, so that this process alone answers it.
        quiet = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGINT, signal.SIG_IGN) if quiet else None
        try:
            return {
                pool.submit(_run_in_worker, self._config, task, index): task
                for index, task in enumerate(self._tasks)
            }
        finally:
            if quiet:
                signal.signal(signal.SIGINT, before)

    @staticmethod
    def _outcome(task: Task, future: Future[Outcome]) -> Outcome:
        try:
            return future.result()
        except BrokenProcessPool:
            text = f"the process of policy {task.policy} was killed, perhaps for memory; try --workers 1"
            return Outcome(policy=task.policy, seed=task.seed, status="failed", error=text, exit_code=1)


_worker: dict[str, Any] = {}
"""What a worker process keeps: the stop event, the counters, and the inputs read once."""


def _begin_worker(stop: Any, counts: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _worker.update(stop=stop, counts=counts, control=None)

    threading.Thread(target=_watch, args=(stop,), daemon=True).start()
    threading.Thread(target=_follow_parent, args=(stop,), daemon=True).start()


def _watch(stop: Any) -> None:
    stop.wait()
    control = _worker["control"]
    if control is not None:
        control.stop()


def _follow_parent(stop: Any) -> None:
    """If the main process is killed, close the log and leave: nobody waits for the results."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    parent.join()
    stop.set()
    time.sleep(_GRACE_S)
    os._exit(1)


def _run_in_worker(config: RunConfig, task: Task, index: int) -> Outcome:
    if _worker["stop"].is_set():
        return _pending(task)
    if "prepared" not in _worker:
        _worker["prepared"] = prepare(config)
    counts = _worker["counts"]

    def count(jobs: int) -> None:
        counts[index] += jobs

    control = _worker["control"] = Control(count)
    if _worker["stop"].is_set():
        control.stop()
    return _run(_worker["prepared"], task, control)


def default_workers() -> int:
    """Cores this process may use."""
    usable: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable is not None else (os.cpu_count() or 1)
