"""Whether a job whose attempt ended is tried again."""

from __future__ import annotations

from cotenant.model.events import Ended
from cotenant.model.records import JobRecord
from cotenant.model.settings import Settings

__all__ = ["tried_again"]


def tried_again(event: Ended, record: JobRecord | None, settings: Settings) -> bool:
    """A preempted job always; one that failed, as often as it declares; one that lost its
    devices, as often as the settings say, since that is nobody's fault.
    """
    if record is None:
        return False
    if event.outcome == "failed":
        return record.failures < record.job.retries
    if event.outcome == "lost":
        return record.losses < settings.retry_lost
    return event.outcome == "preempted"
