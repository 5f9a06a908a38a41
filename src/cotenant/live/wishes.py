"""What became of what owners asked of jobs: known once the loop has decided, for those who wait for it."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from cotenant.model import events as ev
from cotenant.report.phrases import facts_in_words
from cotenant.report.reasons import meaning

__all__ = ["Wishes"]

_KEPT = 4096


class Wishes:
    """An observer of the loop that remembers its last answers to resizes.

    Whether there is room is known only once the loop takes a request up: of two that come together both may seem
    possible when they are accepted.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._answers: dict[tuple[int, str], str] = {}
        self._asked: ev.ResizeRequested | None = None

    def see(self, events: Iterable[ev.Event]) -> None:
        """Take the next events; they are on disk. A refusal is the next event after what it refuses."""
        found: dict[tuple[int, str], str] = {}
        for event in events:
            asked, self._asked = self._asked, None
            if isinstance(event, ev.ResizeRequested):
                self._asked = event
                found[event.id, event.request] = ""
            elif isinstance(event, ev.Refused) and asked is not None and event.id == asked.id:
                numbers = f" ({facts_in_words(event.facts)})" if event.facts else ""
                found[asked.id, asked.request] = f"{meaning(event.reason)}{numbers}"
        if not found:
            return
        with self._changed:
            self._answers |= found
            while len(self._answers) > _KEPT:
                del self._answers[next(iter(self._answers))]
            self._changed.notify_all()

    recall = see
    """A scheduler that was started again gives the same answers."""

    def wait(self, job_id: int, key: str, within_s: float) -> str | None:
        """Why a resize was refused; empty if it was not, None if nothing was decided in that time."""
        wanted = (job_id, key)
        with self._changed:
            self._changed.wait_for(lambda: wanted in self._answers, within_s)
            return self._answers.get(wanted)
