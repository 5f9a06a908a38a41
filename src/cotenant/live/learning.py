"""What runs side by side teach: measured speeds become a table, and a new forecast is fitted on it.

The table is a fold of the log: what was measured is never lost, and a restart measures nothing
twice. Each fit runs in a process of its own, at the lowest priority; what it gives takes the place of
the forecast in use between two instants (``knowledge.LiveForecast``).
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from cotenant.errors import CotenantError
from cotenant.live.knowledge import FIT, LEARNED, LiveForecast, warmed
from cotenant.live.logs import UNDONE
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.ports import Forecast

__all__ = ["MEASURED", "LearningLoop", "Measured", "MeasuredSet"]

MEASURED = "measured.json"
_log = logging.getLogger("cotenant.live")
_FIRST, _PART = 3, 0.5
_LEAST_BETWEEN_S, _SURPRISED_S = 60.0, 5.0
_FIT_S = 600.0


class MeasuredSet(msgspec.Struct, frozen=True, kw_only=True):
    """One set of jobs side by side on a type of device, and how fast each model was.

    Parameters
    ----------
    device_type : str
    models : tuple of str
        Ascending; of two jobs of one model both.
    speeds : dict of str to (int, float)
        Of those measured: how often, and the mean speed relative to alone.
    """

    device_type: str
    models: tuple[str, ...]
    speeds: dict[str, tuple[int, float]] = {}


class Measured:
    """Folds a log into measured sets.

    Jobs without a model's name are left out: nothing could be foretold of them by it. So are gangs
    whose devices have different company: which of them slowed it down was not measured.
    """

    def __init__(self, types: Iterable[str] = ()) -> None:
        self._types = list(types)
        self._models: dict[int, str] = {}
        self._held: dict[int, tuple[int, ...]] = {}
        self._on: dict[int, set[int]] = {}
        self._sets: dict[tuple[str, tuple[str, ...]], dict[str, tuple[int, float]]] = {}
        self.fresh = 0

    def see(self, event: ev.Event) -> None:
        """Take one event."""
        if isinstance(event, ev.Opened):
            if not self._types:
                self._types = [k for node in event.cluster.nodes for k, n in node.gpus for _ in range(n)]
        elif isinstance(event, ev.Submitted):
            self._models[event.job.id] = event.job.model
        elif isinstance(event, (ev.Started, ev.Moved, ev.Resized)):
            self._place(event.id, event.devices)
        elif isinstance(event, (ev.Ended, ev.Suspended)):
            self._place(event.id, ())
            if isinstance(event, ev.Ended) and event.final:
                self._models.pop(event.id, None)
        elif isinstance(event, ev.Rejected):
            self._models.pop(event.id, None)
        elif isinstance(event, ev.Sampled) and event.co_speed > 0.0:
            self._sampled(event)

    def _place(self, job_id: int, devices: tuple[int, ...]) -> None:
        for device in self._held.pop(job_id, ()):
            self._on[device].discard(job_id)
        if devices:
            self._held[job_id] = devices
            for device in devices:
                self._on.setdefault(device, set()).add(job_id)

    def _sampled(self, event: ev.Sampled) -> None:
        devices = self._held.get(event.id, ())
        found = {(self._types[d], tuple(sorted(self._on[d]))) for d in devices if d < len(self._types)}
        if len(found) != 1:
            return
        ((kind, ids),) = found
        models = tuple(sorted(self._models.get(i, "") for i in ids))
        if len(ids) < 2 or not all(models):
            return
        speeds = self._sets.setdefault((kind, models), {})
        model = self._models[event.id]
        count, mean = speeds.get(model, (0, 0.0))
        count += 1
        speeds[model] = (count, mean + (event.co_speed - mean) / count)
        # News at the first, 4th, 16th ... measurement, when the error of the mean has halved.
        self.fresh += count.bit_count() == 1 and count.bit_length() % 2

    def sets(self) -> list[MeasuredSet]:
        """All that was measured."""
        return [
            MeasuredSet(device_type=kind, models=models, speeds=dict(speeds))
            for (kind, models), speeds in sorted(self._sets.items())
        ]

    def __len__(self) -> int:
        return sum(map(len, self._sets.values()))


class LearningLoop:
    """An observer that fits anew once enough was measured.

    Parameters
    ----------
    state : Path
        The state folder.
    cluster : Cluster
    forecast : LiveForecast
        To be exchanged.
    wake : callable
        Makes the loop look at what is new.
    enabled : bool
        False: the table is kept, nothing is fitted.
    """

    def __init__(
        self,
        state: Path,
        cluster: Cluster,
        forecast: LiveForecast,
        wake: Callable[[], None],
        *,
        enabled: bool = True,
        least_between_s: float = _LEAST_BETWEEN_S,
    ) -> None:
        self.measured = Measured()
        self._folder, self._cluster, self._forecast = state / LEARNED, cluster, forecast
        self._wake, self._enabled, self._between_s = wake, enabled, least_between_s
        self._fitting: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._next = time.monotonic() + least_between_s
        self.fits = 0
        self._surprised = False

    def recall(self, events: Iterable[ev.Event]) -> None:
        """Events of before: what they taught is in the saved predictor."""
        for event in events:
            self.measured.see(event)
        self.measured.fresh = 0

    def see(self, events: Iterable[ev.Event]) -> None:
        """Take events that are on disk."""
        for event in events:
            self.measured.see(event)
            if isinstance(event, ev.Stopping) and event.why.rule in UNDONE:
                # A prediction was wrong by so much that a set was undone: the sooner that is learnt, the better.
                self._surprised, self._next = True, min(self._next, time.monotonic() + _SURPRISED_S)
        self.look()

    def look(self) -> None:
        """Between two instants, also if nothing happens: exchange the forecast if a new one is ready; fit if it is time."""
        if self._forecast.take():
            kind = self._forecast.describe().get("kind", "another")
            _log.info("the %s forecast is in use from now on (version %d)", kind, self._forecast.version)
        if self._enabled and self._due():
            self._begin()

    def _due(self) -> bool:
        least = 1 if self._surprised else max(_FIRST, _PART * (len(self.measured) - self.measured.fresh))
        if self.measured.fresh < least:
            return False
        return self._fitting is None and time.monotonic() >= self._next

    def _begin(self) -> None:
        self.measured.fresh, self._surprised = 0, False
        self._next = time.monotonic() + self._between_s
        sets = self.measured.sets()
        self._fitting = threading.Thread(target=self._fit, args=(sets,), name="cotenant-fit", daemon=True)
        self._fitting.start()

    def _fit(self, sets: list[MeasuredSet]) -> None:
        """In a thread of its own: write the table, wait for the fit, offer it."""
        try:
            forecast = self._fitted(sets)
            self._forecast.offer(forecast)
            self.fits += 1
            self._wake()
        except (OSError, CotenantError, subprocess.SubprocessError) as error:
            _log.warning("no new forecast could be fitted, the one in use stays: %s", error)
        finally:
            self._fitting = self._process = None

    def _fitted(self, sets: list[MeasuredSet]) -> Forecast:
        from cotenant.live.statedir import private_folder
        from cotenant.live.tenants import write_private
        from cotenant.predictors.adaptive import AdaptiveForecast
        from cotenant.predictors.interference.modelfile import load_predictor

        private_folder(self._folder)
        write_private(self._folder / MEASURED, msgspec.json.encode(sets).decode() + "\n")
        words = [sys.executable, "-m", "cotenant.live.refit", str(self._folder)]
        self._process = subprocess.Popen(  # noqa: S603
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        try:
            _, told = self._process.communicate(timeout=_FIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise
        if self._process.returncode:
            last = told.decode(errors="replace").strip().splitlines()[-1:] or ["no reason given"]
            raise subprocess.SubprocessError(f"the fit ended with {self._process.returncode}: {last[0]}")
        path = self._folder / FIT
        found = AdaptiveForecast(load_predictor(path), cluster=self._cluster, source=path.name)
        return warmed(found, self._cluster)

    def close(self) -> None:
        """A fit that is under way is given up."""
        if (process := self._process) is not None and process.poll() is None:
            process.kill()
