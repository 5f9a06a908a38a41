"""The adaptive interference predictor as the forecast behind policies.

``--forecast adaptive:fit.json`` takes a saved predictor (``cotenant fit``); ``adaptive`` alone
fits one on the half of the measured pairs that a forecast may know.

A job of which nothing at all is known, not even a run alone, is by default never worth packing:
its speed beside others is told as an even share of the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cotenant.errors import ConfigError
from cotenant.model.cluster import Cluster
from cotenant.model.ports import Interval
from cotenant.model.quantities import MIB
from cotenant.predictors.base import ALONE, SpeedSetup
from cotenant.predictors.contention import ContentionForecast
from cotenant.predictors.interference.compiled import CompiledWorld
from cotenant.predictors.interference.jobs import World
from cotenant.predictors.interference.modelfile import card_of, load_predictor
from cotenant.predictors.interference.predictor import AdaptiveInterferencePredictor
from cotenant.predictors.live import LiveSpeeds
from cotenant.profiles.catalogue import filed_as, measured_as
from cotenant.profiles.compose import Query
from cotenant.profiles.kinds import KINDS, canonical_model, usage_of
from cotenant.profiles.physics import MIN_SPEED, Usage, on_device
from cotenant.profiles.runs import CoRun, CoSide, JobConfig, SoloRun
from cotenant.profiles.runsfile import config_of
from cotenant.profiles.solo import SoloSpeeds
from cotenant.profiles.table import CoRunTable

__all__ = ["AdaptiveForecast", "config_of", "runs_of"]


class AdaptiveForecast:
    """Speeds from the adaptive interference predictor.

    Parameters
    ----------
    predictor : AdaptiveInterferencePredictor
        Fitted.
    cluster : Cluster, optional
        For speeds of jobs alone.
    pack_unknown : bool
        Whether a job of which nothing is known may look worth packing.
    source : str
        Where the predictor comes from, for logs.
    """

    def __init__(
        self,
        predictor: AdaptiveInterferencePredictor,
        *,
        cluster: Cluster | None = None,
        pack_unknown: bool = False,
        source: str = "",
    ) -> None:
        self.predictor = predictor
        self.pack_unknown = pack_unknown
        self._source = source
        self._types = (
            [] if cluster is None else sorted({name for node in cluster.nodes for name, _ in node.gpus})
        )
        self._solo = SoloSpeeds(cluster, "gavel-2019-08")
        self._version = 1
        self._live = LiveSpeeds()
        self._start()

    def _start(self) -> None:
        self._worlds: dict[str, CompiledWorld] = {}
        self._names: dict[World, dict[str, JobConfig]] = {}
        self._numbers: dict[str, dict[str, int]] = {}
        self._memo: dict[Query, Interval] = {}

    @classmethod
    def from_setup(cls, setup: SpeedSetup) -> AdaptiveForecast:
        """Build from what may be known.

        Raises
        ------
        ConfigError
            If there is neither a saved predictor nor a table to fit on.
        """
        if setup.argument:
            path = Path(setup.argument)
            return cls(load_predictor(path), cluster=setup.cluster, source=path.name)
        if setup.fit is None:
            raise ConfigError(
                'forecast "adaptive" needs measurements: adaptive:fit.json (see cotenant fit), or --profiles TABLE'
            )
        predictor = AdaptiveInterferencePredictor().fit(runs_of(setup.fit), _profiled(setup.seed, setup.fit))
        return cls(predictor, cluster=setup.cluster, source=setup.fit.name)

    @property
    def version(self) -> int:
        """Changes when predictions change."""
        return self._version

    def solo_speed(self, model: str, device_type: str) -> float:
        """Predicted speed alone on this type, relative to the reference device."""
        return self._solo(model, device_type)

    def co_speed(self, model: str, beside: tuple[str, ...], device_type: str) -> Interval:
        """Predicted speed beside these jobs, divided by speed alone; in [0.02, 1]."""
        query = (model, beside, device_type)
        found = self._memo.get(query)
        if found is None:
            found = self._live.blended(query, self._single(query)) if beside else ALONE
            self._memo[query] = found
        return found

    def co_speeds(self, queries: Sequence[Query]) -> list[Interval]:
        """``co_speed`` for many sets at once: (model, beside, device type) each."""
        memo = self._memo
        missing = list(dict.fromkeys(q for q in queries if q not in memo))
        by_type: dict[str, list[Query]] = {}
        for query in missing:
            if query[1]:
                by_type.setdefault(query[2], []).append(query)
            else:
                memo[query] = ALONE
        for device_type, asked in by_type.items():
            said = self._computed(device_type, asked)
            memo.update((q, self._live.blended(q, its)) for q, its in zip(asked, said, strict=True))
        return [memo[query] for query in queries]

    def usage(self, model: str, device_type: str) -> Usage:
        """Shares of compute, bandwidth and host that a model uses alone, from the catalogue of kinds."""
        return on_device(usage_of(canonical_model(model)), device_type)

    def observe(self, runs: Sequence[CoRun]) -> None:
        """Learn from co-runs that were measured meanwhile."""
        self.predictor.observe(runs)
        self._version += 1
        self._start()

    def learn(self, model: str, beside: tuple[str, ...], device_type: str, speed: float) -> None:
        """Learn a speed that a light sample measured, in batches (``predictors.live``).

        The predictor learns it as a co-run; of the set itself, what the predictor says then counts
        as one more measurement beside those made.
        """
        if self._live.add((model, beside, device_type), speed):
            self.observe(self._co_runs(self._live.take()))

    def _co_runs(self, speeds: dict[Query, float]) -> list[CoRun]:
        """Measured speeds as co-runs, of whose other jobs nothing is told if they were not sampled."""
        sets = dict.fromkeys((tuple(sorted((model, *beside))), kind) for model, beside, kind in speeds)
        found = []
        for number, (models, device_type) in enumerate(sets):
            compiled = self._compiled(device_type)
            source, name = compiled.world
            names, sides = self._names[compiled.world], []
            for i, model in enumerate(models):
                speed = speeds.get((model, models[:i] + models[i + 1 :], device_type))
                job = names.get(canonical_model(model)) or config_of(model)
                sides.append(CoSide(job=job, speed=speed, label_ok=speed is not None))
            row = f"sampled-{self._version}-{number}"
            found.append(CoRun(row_id=row, source=source, device_type=name, sides=tuple(sides)))
        return found

    def describe(self) -> dict[str, Any]:
        """Plain JSON for the log."""
        card = card_of(self.predictor)
        return {
            "kind": "adaptive",
            "oracle": False,
            "source": self._source,
            "content_sha256": card["data"]["content_sha256"],
            "co_runs": card["data"]["co_runs"],
            "members": card["members"],
            "pack_unknown": self.pack_unknown,
            "solo_speeds": self._solo.campaign,
            "unmeasured_types": [name for name in self._types if not self._counts(name)],
        }

    def _computed(self, device_type: str, queries: Sequence[Query]) -> list[Interval]:
        compiled = self._compiled(device_type)
        names = self._names[compiled.world]
        flat = [name for q in queries for name in (q[0], *q[1])]
        jobs = [names.get(canonical_model(name)) or config_of(name) for name in flat]
        ids = compiled.add(jobs)
        width = max(len(q[1]) for q in queries)
        victim = np.empty(len(queries), np.intp)
        others = np.full((len(queries), width), -1, np.intp)
        at = 0
        for i, query in enumerate(queries):
            k = len(query[1])
            victim[i] = ids[at]
            others[i, :k] = ids[at + 1 : at + 1 + k]
            at += 1 + k
        mean, low, high = compiled.predict(victim, others)
        if not self.pack_unknown:
            share = 1.0 / (1.0 + (others >= 0).sum(axis=1))
            unknown = compiled.unknown(victim, others)
            mean = np.where(unknown, np.minimum(mean, share), mean)
            low = np.where(unknown, MIN_SPEED, low)
            high = np.where(unknown, 1.0, high)
        return list(map(Interval, mean.tolist(), low.tolist(), high.tolist()))

    def _single(self, query: Query) -> Interval:
        # Policies ask for sets one by one, as they first meet them: arrays of one row would cost more than all else.
        model, beside, device_type = query
        compiled = self._compiled(device_type)
        numbers = self._numbers.setdefault(device_type, {})
        flat = (model, *beside)
        if any(name not in numbers for name in flat):
            names = self._names[compiled.world]
            jobs = [names.get(canonical_model(name)) or config_of(name) for name in flat]
            numbers.update(zip(flat, compiled.add(jobs).tolist(), strict=True))
        victim, *others = [numbers[name] for name in flat]
        mean, low, high = compiled.predict_one(victim, others)
        if not self.pack_unknown and compiled.unknown_one(victim, others):
            mean, low, high = min(mean, 1.0 / (1.0 + len(others))), MIN_SPEED, 1.0
        return Interval(mean, low, high)

    def _compiled(self, device_type: str) -> CompiledWorld:
        found = self._worlds.get(device_type)
        if found is None:
            world = self._world_of(device_type)
            group, _ = self.predictor.group_of(world)
            known = sorted(job for job, its in group.table.names if its == world)
            if world not in self._names:
                # Of configurations that a name does not tell apart, the plainest one.
                self._names[world] = {canonical_model(job.label): job for job in reversed(known)}
            # The catalogue's kinds, too, all at once: a set's last bits depend on who was compiled together, and must
            # not depend on what was asked first.
            names = self._names[world]
            others = dict.fromkeys(config_of(kind) for kind in KINDS if canonical_model(kind) not in names)
            found = self._worlds[device_type] = CompiledWorld(
                self.predictor, world, [*known, *sorted(others.keys() - set(known))]
            )
        return found

    def _world_of(self, device_type: str) -> World:
        """The campaign with most co-runs on this type; a stand-in if there is none."""
        counts = self._counts(device_type)
        if counts:
            return max(sorted(counts), key=lambda world: counts[world])
        return (self.predictor.worlds[0][0], device_type)

    def _counts(self, device_type: str) -> dict[World, int]:
        """Co-runs of each campaign on this type."""
        by_type: dict[str, dict[World, int]] = {}
        for run in self.predictor.runs:
            world = (run.source, run.device_type)
            if world in self.predictor.worlds:
                counts = by_type.setdefault(filed_as(run.device_type), {})
                counts[world] = counts.get(world, 0) + 1
        # A type that neither the catalogue nor the campaigns know is taken for a V100.
        return by_type.get(filed_as(device_type)) or by_type.get(measured_as(device_type), {})


def _profiled(seed: int, table: CoRunTable) -> list[SoloRun]:
    """Solo runs of the catalogue's kinds, with the measurement error that ``contention`` has too.

    So a kind that is in no co-run of the table is still one that was profiled alone, as it would be
    before anybody lets it share.
    """
    profiles = ContentionForecast(seed)
    found = []
    for campaign, device_type in sorted({(row.campaign, row.device_type) for row in table.rows}):
        for name, kind in KINDS.items():
            compute, bandwidth, host = profiles.usage(name, device_type)
            found.append(
                SoloRun(
                    source=campaign,
                    device_type=device_type,
                    job=config_of(name),
                    gpu_util=100.0 * compute,
                    mem_util=100.0 * bandwidth,
                    mem_mib=kind.memory_bytes / MIB,
                    counters={"host_share": host},
                )
            )
    return found


def runs_of(table: CoRunTable) -> list[CoRun]:
    """Measured pairs as co-runs."""
    found = []
    for i, row in enumerate(table.rows):
        sides = tuple(
            CoSide(job=config_of(model), speed=speed, label_ok=speed is not None)
            for model, speed in ((row.a, row.a_speed), (row.b, row.b_speed))
        )
        ran = row.a_speed is not None or row.b_speed is not None
        if ran or row.failed:
            found.append(
                CoRun(
                    row_id=str(i),
                    source=row.campaign,
                    device_type=row.device_type,
                    sides=sides,
                    status="ok" if ran else "failed",
                )
            )
    return found
