"""Every reason to wait in plain words, and what would end it."""

from __future__ import annotations

from cotenant.model.plan import Reason

__all__ = ["meaning", "remedy"]

_WORDS: dict[str, tuple[str, str]] = {
    Reason.NEVER_FITS: (
        "no device or node of this cluster can ever hold it",
        "nothing in this cluster; ask for less, or for another device type",
    ),
    Reason.NO_CAPACITY: (
        "too few devices are free",
        "running jobs that end, or a stop of one that may be stopped",
    ),
    Reason.FRAGMENTED: (
        "enough devices are free in all, but not where it needs them together",
        "a running job that ends on the right node, or a move of one",
    ),
    Reason.MEMORY: (
        "no device has that much memory left",
        "a resident that ends, or a smaller memory request",
    ),
    Reason.COMPUTE: (
        "no device has that much compute left",
        "a resident that ends, or a smaller compute guarantee",
    ),
    Reason.HOST: (
        "the node lacks CPU or host memory",
        "a job that ends on the node, or a smaller host request",
    ),
    Reason.TENANT_LIMIT: ("its tenant is at its limit", "an end of the tenant's own jobs, or a higher limit"),
    Reason.TENANT_CAPACITY_ZERO: ("its tenant may use nothing at all", "a limit above zero for the tenant"),
    Reason.BEHIND_HEAD: (
        "jobs ahead of it in the queue go first",
        "the start of the jobs ahead, or a policy that backfills",
    ),
    Reason.BEHIND_RESERVATION: (
        "starting it now would delay a job with a reservation",
        "the start of the job with the reservation, or a shorter estimate of its own time",
    ),
    Reason.RESERVED: ("the devices are held for another job", "the start of the job they are held for"),
    Reason.ISOLATION: (
        "it may not share with the jobs of others that are there (--sharing)",
        "a wider --sharing of both, where their tenants' isolation allows it, or a device that they leave",
    ),
    Reason.SHARERS: ("the devices that would do have all residents they may have", "a resident that ends"),
    Reason.DEVICE_TYPE: ("the cluster has no device of the types it accepts", "another device type"),
    Reason.SPAN: (
        "its devices would lie on several nodes, which the settings forbid",
        "fewer GPUs, or another gang setting",
    ),
    Reason.DETERMINISM: (
        "its results are to be reproducible, which at its grade they are only on devices of one type",
        "devices of the type that it runs on or has saved its state on, or a grade that allows others (D2, none)",
    ),
    Reason.DEVICE_UNAVAILABLE: ("devices it could use are down or drained", "the return of the devices"),
    Reason.MALFORMED: ("the request contradicts itself", "a corrected request"),
    Reason.MIN_QUANTUM: (
        "the jobs in its way have not run their minimum yet",
        "the end of their minimum quantum",
    ),
    Reason.NOT_SUSPENDABLE: ("the jobs in its way cannot be suspended", "their end"),
    Reason.STATE_ROOM: (
        "no tier has room for the state of a job in its way",
        "state that is loaded again, or a larger tier",
    ),
    Reason.SLOWDOWN: (
        "sharing would slow it or a neighbour down too much",
        "a free device, or a gentler neighbour",
    ),
    Reason.NOT_WORTH_IT: ("making room would cost more than it gains", "an end of a running job"),
    Reason.WAITING_SLICE: ("it waits for its turn on a time-sliced device", "its next turn"),
    Reason.FOREIGN_USE: (
        "processes outside the scheduler hold memory of a device that it needs",
        "the end of those processes; it then starts by itself",
    ),
    Reason.STILL_STARTING: (
        "its process is not known to run yet",
        "the start of its process, seconds away",
    ),
    Reason.STILL_RESIZING: (
        "an earlier resize of it is under way",
        "the end of the earlier resize, a step or two away",
    ),
    Reason.HELD_BY_USER: ("its owner suspended it", "a resume by its owner"),
    Reason.AWAITS_JOBS: ("other jobs must end well before it", "the end of the jobs that it names"),
    Reason.DEPENDENCY_FAILED: (
        "a job that had to end well before it did not",
        "a new submission, once that job has ended well",
    ),
    Reason.LOWER_RANK: ("jobs with a better rank come first", "the start of jobs with a better rank"),
}


def meaning(reason: str) -> str:
    """The reason in plain words.

    >>> meaning("no-capacity")
    'too few devices are free'
    """
    return _WORDS.get(reason, (reason.replace("-", " "), ""))[0]


def remedy(reason: str) -> str:
    """What would end the wait; empty if that is not known."""
    return _WORDS.get(reason, ("", ""))[1]
