"""What runs inside a job: two lines in a training script.

::

    from cotenant import runtime

    run = runtime.attach(model, optimizer, scheduler, data=loader, total_steps=10_000)
    for step, batch in run.steps():
        ...

The job then tells how far it is, leaves at a step boundary when asked, goes on later as if it had
never left, and keeps to its share. Outside cotenant the same script runs as it is. Light to
import: PyTorch is loaded by the script, not by this.
"""

from __future__ import annotations

from cotenant.errors import StateError
from cotenant.runtime.entry import attach
from cotenant.runtime.resumable import Resumable
from cotenant.runtime.run import SUSPENDED, Run, Suspended
from cotenant.runtime.statusfile import Status, StatusFile

__all__ = ["SUSPENDED", "Resumable", "Run", "StateError", "Status", "StatusFile", "Suspended", "attach"]
