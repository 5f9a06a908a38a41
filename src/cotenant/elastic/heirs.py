"""Who is the first process after the first: what is left to it, and what nobody can do any more."""

from __future__ import annotations

import sys
from collections.abc import Callable

from cotenant.elastic.held import Held
from cotenant.elastic.members import Finished, Member

__all__ = ["finish", "inherit"]


def inherit(held: Held, member: Member) -> None:
    """This process is the first from now on: say what the one before did not live to do.

    A script prints and writes where ``run.first`` holds, after a step's gradients are there. The others have then
    been through that part of the step already, without being the first.
    """
    past = member.past()
    if past is not None and past < held.place.step:
        held.missed = past
        sys.stderr.write(
            f"cotenant: the first process was killed in step {past}, after the turns, and the others have done that step:"
            " what it prints or writes in it may be missing\n"
        )


def finish(held: Held, member: Member, join: Callable[[], None]) -> None:
    """Tell that the last step is done, once the last state is written.

    If the first process dies before, another is the first, and writes it.

    Parameters
    ----------
    join : callable
        Become part of the next generation; may raise ``Finished``.
    """
    while held.rank > 0 and not member.finished():
        try:
            join()
        except Finished:
            return
    held.save()
    if held.rank == 0:
        member.finish(whole=held.missed != held.place.step - 1)
