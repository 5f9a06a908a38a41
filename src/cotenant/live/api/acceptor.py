"""Submissions that arrive together are made durable together: one transaction, one wait for the disk."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from cotenant.live.api.problems import HttpError
from cotenant.live.views import Caller, Service
from cotenant.model.liveports import Accepted, Request

__all__ = ["Acceptor"]

_Answers = list[Accepted | Exception]
_Waiting = tuple[list[Request], asyncio.Future[_Answers]]


class Acceptor:
    """Groups concurrent submissions into one ``Service.submit``.

    While one group is written, the next gathers: alone, a submission waits for nothing; under load,
    groups grow by themselves. Callers take turns, so that one's thousand jobs do not hold up another's one;
    within a caller the order is kept.

    Parameters
    ----------
    service : Service
    most_waiting : int
        Jobs that may wait; more are refused with 503.
    group : int
        Most jobs of one call.

    Attributes
    ----------
    calls, accepted, waiting : int
        Calls of the service so far, jobs in them, and jobs not answered yet.
    """

    def __init__(self, service: Service, most_waiting: int, group: int = 1000) -> None:
        self._service, self._most, self._group = service, most_waiting, group
        self._queues: dict[Caller, deque[_Waiting]] = {}
        self.waiting = 0
        self._worker: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cotenant-accept")
        self.calls = self.accepted = 0

    async def submit(self, caller: Caller, requests: list[Request]) -> _Answers:
        """Make requests durable; one answer for each.

        Raises
        ------
        HttpError
            503: too many wait already.
        """
        if self.waiting + len(requests) > self._most:
            raise HttpError(
                503,
                "BusyError",
                f"{self.waiting:,} submissions wait for the disk",
                hint="nothing of this request was kept; try again in a second",
                headers={"retry-after": "1"},
            )
        future: asyncio.Future[_Answers] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(caller, deque()).append((requests, future))
        self.waiting += len(requests)
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._queues:
                caller, group = self._next_group()
                requests = [request for requests, _ in group for request in requests]
                try:
                    answers = await loop.run_in_executor(self._thread, self._service.submit, caller, requests)
                    if len(answers) != len(requests):
                        raise RuntimeError(f"{len(requests)} requests, {len(answers)} answers")
                except Exception as error:  # handed to who asked, who tells it
                    for _, future in group:
                        if not future.done():
                            future.set_exception(error)
                    answers = []
                self._answer(group, answers)
                self.waiting -= len(requests)
        finally:
            self._worker = None

    def _next_group(self) -> tuple[Caller, list[_Waiting]]:
        """What waits for the caller whose turn it is."""
        caller = next(iter(self._queues))
        queue = self._queues.pop(caller)
        group = [queue.popleft()]
        size = len(group[0][0])
        while queue and size + len(queue[0][0]) <= self._group:
            group.append(queue.popleft())
            size += len(group[-1][0])
        if queue:
            self._queues[caller] = queue  # at the end: others first
        return caller, group

    def _answer(self, group: list[_Waiting], answers: _Answers) -> None:
        self.calls += 1
        self.accepted += len(answers)
        done = 0
        for requests, future in group:
            if not future.done():
                future.set_result(answers[done : done + len(requests)])
            done += len(requests)

    def close(self) -> None:
        """Finish what is being written."""
        self._thread.shutdown(wait=True)
