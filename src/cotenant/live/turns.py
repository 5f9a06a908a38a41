"""Jobs that take turns: all but those of one turn are stopped by signal, and hold their memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cotenant.live.attempts import Run

__all__ = ["Turns"]


class Turns:
    """Rotates the time-sliced residents of devices.

    Jobs that share a device rotate together with all that share one with them, so that a gang's
    processes work at the same time.

    Parameters
    ----------
    slice_s : float
        Length of a turn.
    pause : callable
        Given a run and whether it is to stand still.
    """

    def __init__(self, slice_s: float, pause: Callable[[Run, bool], None]) -> None:
        self._slice_s, self._pause = slice_s, pause
        self._at: dict[int, tuple[int, float]] = {}

    def rotate(self, runs: Iterable[Run], now: float) -> float:
        """Let the turn go on where it is time; returns when to call again."""
        due, seen = float("inf"), set[int]()
        up = [run for run in runs if run.phase == "up"]
        for run in up:
            if run.turned and run.place.share.mode != "time-sliced":
                self._set(run, False, now)  # it takes turns no more
        for group in _groups([run for run in up if run.place.share.mode == "time-sliced"]):
            key = min(d for run in group for d in run.place.devices)
            seen.add(key)
            turns = sorted({run.turn for run in group})
            at, since_s = self._at.get(key, (turns[0], now))
            if at not in turns or now >= since_s + self._slice_s:
                at, since_s = next((t for t in turns if t > at), turns[0]), now
            self._at[key] = at, since_s
            for run in group:
                self._set(run, run.turn != at, now)
            if len(turns) > 1:
                due = min(due, since_s + self._slice_s)
        for key in [key for key in self._at if key not in seen]:
            del self._at[key]
        return due

    def _set(self, run: Run, stands: bool, now: float) -> None:
        """Who is to leave, or is stopped by its user, is left alone."""
        if run.want or run.halted or run.turned == stands:
            return
        run.turned = stands
        run.stand(stands, now)
        self._pause(run, stands)


def _groups(runs: list[Run]) -> list[list[Run]]:
    groups: list[tuple[set[int], list[Run]]] = []
    for run in runs:
        devices, members = set(run.place.devices), [run]
        apart = []
        for there, group in groups:
            if there & devices:
                devices |= there
                members = group + members
            else:
                apart.append((there, group))
        groups = [*apart, (devices, members)]
    return [members for _, members in groups]
