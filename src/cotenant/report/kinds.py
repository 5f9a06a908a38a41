"""Small integer codes of the events, for folding many at once."""

from __future__ import annotations

import numpy as np

from cotenant.model import events as ev

__all__ = ["Kind"]


class Kind:
    """Codes of the event kinds; ``OF`` maps a class to its code."""

    (
        SUBMITTED,
        REJECTED,
        STARTED,
        RATED,
        STOPPING,
        SUSPENDED,
        ENDED,
        MOVED,
        RELEASED,
        RESIZED,
        RESERVED,
        HELD,
        REFUSED,
        NODE_DOWN,
        NODE_UP,
        DEVICE_DOWN,
        DEVICE_UP,
        DRAINED,
        UNDRAINED,
        OPENED,
        CLOSED,
        OTHER,
    ) = range(22)

    OF: dict[type, int] = {
        **dict.fromkeys(ev.EVENT_KINDS, OTHER),
        ev.Submitted: SUBMITTED,
        ev.Rejected: REJECTED,
        ev.Started: STARTED,
        ev.Rated: RATED,
        ev.Stopping: STOPPING,
        ev.Suspended: SUSPENDED,
        ev.Ended: ENDED,
        ev.Moved: MOVED,
        ev.Released: RELEASED,
        ev.Resized: RESIZED,
        ev.Reserved: RESERVED,
        ev.Held: HELD,
        ev.Refused: REFUSED,
        ev.NodeDown: NODE_DOWN,
        ev.NodeUp: NODE_UP,
        ev.DeviceDown: DEVICE_DOWN,
        ev.DeviceUp: DEVICE_UP,
        ev.Drained: DRAINED,
        ev.Undrained: UNDRAINED,
        ev.Opened: OPENED,
        ev.Closed: CLOSED,
    }

    OF_JOBS = frozenset(
        (SUBMITTED, REJECTED, STARTED, RATED, STOPPING, SUSPENDED, ENDED, MOVED, RELEASED, RESIZED, HELD)
    )
    """Kinds whose ``id`` the fold follows."""

    AVAILABILITY: dict[int, tuple[str, bool]] = {
        NODE_DOWN: ("node", True),
        NODE_UP: ("node", False),
        DEVICE_DOWN: ("device", True),
        DEVICE_UP: ("device", False),
        DRAINED: ("drain", True),
        UNDRAINED: ("drain", False),
    }
    """What goes away (True) or returns, for each event that says so."""

    IN_ORDER = (MOVED, RELEASED, RESIZED, RESERVED, *AVAILABILITY)
    """Kinds that need a walk over events in order; a rejection only matters to reservations."""

    PLACES = np.zeros(22, dtype=bool)
    """Kinds that change who holds which device."""
    PLACES[[REJECTED, STARTED, SUSPENDED, ENDED, MOVED, RELEASED, RESIZED, RESERVED]] = True
    PLACES[list(AVAILABILITY)] = True
    TURNS = np.zeros(22, dtype=bool)
    """Kinds at which a placed job may begin or stop to progress where it is."""
    TURNS[[RATED, STOPPING]] = True
