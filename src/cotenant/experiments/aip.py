"""AIP's experiment: five networks on several device types, each technique fixed, and the adaptive choice."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from cotenant.experiments.base import Claim, Experiment, Measured, Place, Table, change
from cotenant.predictors.interference.predictor import AdaptiveInterferencePredictor
from cotenant.profiles.runs import CoRun, SoloRun

__all__ = ["Aip"]

_CAMPAIGN = "gavel-2020"
_FAMILIES = ("ResNet-18", "ResNet-50", "Transformer", "LM", "Recoder-AE")
_FIXED = (
    "constant",
    "utilisation-sum",
    "contention",
    "additive",
    "ridge",
    "knn",
    "svr",
    "extra-trees",
    "effects-lean",
    "effects-smooth",
    "effects-staged",
)
_ADAPTIVE = "adaptive"
_SPLITS = ("random 5-fold", "leave one pair out", "leave one job out")
_SOURCE = "joca.cn, doi 10.11772/j.issn.1001-9081.2021061404, abstract"

Split = tuple[str, list[CoRun], list[CoRun]]


def _error_claim(key: str, split: str, differs: str) -> Claim:
    return Claim(
        key=key,
        what=f"Error of the adaptive choice, {split}",
        paper="2 to 13 %",
        low=2.0,
        high=13.0,
        unit="%",
        better="low",
        source=_SOURCE,
        how="mean absolute error of the predicted time of an iteration beside another job, over the measured one, "
        "all device types pooled (the abstract does not say whether its error is of this or of the interference rate)",
        differs=differs,
    )


class Aip(Experiment):
    """How far the adaptive choice among predictors is from the best and the worst of them."""

    name: ClassVar[str] = "aip"
    title: ClassVar[str] = "AIP: adaptive prediction of interference"
    paper: ClassVar[str] = (
        "Keeps several prediction techniques, and takes for each device type and job set the one with the least "
        "error. Five networks on two device types: errors of the interference rate of 2% to 13%, prediction and "
        "choice within 300 s."
    )
    source: ClassVar[str] = _SOURCE
    reconstruction: ClassVar[tuple[str, ...]] = (
        "The networks, batch sizes and device types of the paper are not known. Here: ResNet-18, ResNet-50, "
        "Transformer, LM and Recoder-AE at up to five batch sizes each, in pairs on K80, P100 and V100, as measured by "
        "others (stanford-futuredata/gavel, MIT; campaign gavel-2020).",
        "The techniques are not listed in the abstract. Here eleven, from a constant to models of effects; the "
        "adaptive choice averages those near the best by errors on pairs and jobs it has not seen.",
        "The assumptions of the models of effects were chosen by looking at splits of this very collection "
        "(docs/prediction/interference.md): on other campaigns expect somewhat more error.",
        "Random 5-fold flatters: a pair's other batch sizes stay known. Leaving out every run of a pair of "
        "architectures, or of one architecture, on all device types is what a new job meets.",
    )
    claims: ClassVar[tuple[Claim, ...]] = (
        _error_claim(
            "time_error_folds",
            _SPLITS[0],
            "other networks and devices; most pairs are known at other batch sizes in this split",
        ),
        _error_claim(
            "time_error_pairs",
            _SPLITS[1],
            "the paper does not say what it leaves out; with every run of the pair of architectures left out, on all "
            "device types, errors grow",
        ),
        _error_claim(
            "time_error_jobs",
            _SPLITS[2],
            "a fifth network is told from four others, of which none need be like it; the paper does not test that",
        ),
        Claim(
            key="against_best_folds",
            what="Adaptive choice against the best technique fixed for all, random 5-fold",
            paper="no number",
            unit="%",
            better="low",
            source=_SOURCE,
            how="change of the adaptive choice's error against the fixed technique with the least error afterwards, which "
            "nobody could have known before",
            differs="0 would be a choice as good as hindsight",
        ),
        Claim(
            key="against_worst_folds",
            what="Adaptive choice against the worst technique, random 5-fold",
            paper="no number",
            unit="%",
            better="low",
            source=_SOURCE,
            how="the same against the fixed technique with the largest error",
            differs="what choosing is worth where one might have chosen wrongly",
        ),
        Claim(
            key="seconds",
            what="Fitting every technique, choosing, and predicting",
            paper="under 300 s",
            high=300.0,
            low=0.0,
            unit="s",
            better="low",
            source=_SOURCE,
            how="wall time of one fit with choice on all runs, and of predicting all of them, on one core",
            differs="",
            volatile=True,
        ),
    )

    def measure(self, seed: int, place: Place) -> Measured:
        """Judge every technique by every split; those that draw nothing only with the first seed."""
        from cotenant.profiles.runsfile import read_co_runs, read_solo_runs

        folder = place.need("interference")
        runs, solos = _runs(read_co_runs(folder), place), read_solo_runs(folder)
        members = place.pick(_FIXED, _FIXED[:5] + _FIXED[-3:], ("constant", "additive"))
        errors = _Errors()
        for split, left, asked in self._splits(runs, seed, place):
            for member in (*members, _ADAPTIVE):
                zoo: Any = place.pick("quick", "quick", "small") if member == _ADAPTIVE else (member,)
                predictor = AdaptiveInterferencePredictor(zoo=zoo).fit(left, solos)
                errors.add(split, member, asked, predictor.predict(asked))
        seconds = _seconds(runs, solos, place)
        best, worst = errors.extremes(_SPLITS[0], members)
        chosen = errors.of_time(_SPLITS[0], _ADAPTIVE)
        values = {
            "time_error_folds": chosen,
            "time_error_pairs": errors.of_time(_SPLITS[1], _ADAPTIVE),
            "time_error_jobs": errors.of_time(_SPLITS[2], _ADAPTIVE),
            "against_best_folds": change(chosen, best),
            "against_worst_folds": change(chosen, worst),
            "seconds": seconds,
        }
        return Measured(values=values, tables=[errors.by_member(), errors.by_device()])

    @staticmethod
    def _splits(runs: list[CoRun], seed: int, place: Place) -> Iterator[Split]:
        fold = np.random.default_rng(seed).permutation(np.arange(len(runs)) % 5)
        for k in range(place.pick(5, 5, 1)):
            yield (
                _SPLITS[0],
                [r for r, f in zip(runs, fold, strict=True) if f != k],
                [r for r, f in zip(runs, fold, strict=True) if f == k],
            )
        if seed:
            return
        pairs = sorted({_families(run) for run in runs})
        for pair in pairs[: place.pick(len(pairs), 5, 1)]:
            yield (
                _SPLITS[1],
                [r for r in runs if _families(r) != pair],
                [r for r in runs if _families(r) == pair],
            )
        for family in _FAMILIES[: place.pick(5, 5, 1)]:
            yield (
                _SPLITS[2],
                [r for r in runs if family not in _families(r)],
                [r for r in runs if family in _families(r)],
            )


def _families(run: CoRun) -> tuple[str, ...]:
    return tuple(sorted(side.job.group for side in run.sides))


def _runs(every: Sequence[CoRun], place: Place) -> list[CoRun]:
    devices = place.pick(("K80", "P100", "V100"), ("K80", "P100", "V100"), ("P100",))
    return [
        run
        for run in every
        if run.source == _CAMPAIGN
        and run.device_type in devices
        and run.status != "unmeasured"
        and all(side.job.group in _FAMILIES for side in run.sides)
    ]


def _seconds(runs: list[CoRun], solos: list[SoloRun], place: Place) -> float:
    begun = time.perf_counter()
    zoo: Any = place.pick("all", "quick", "small")
    AdaptiveInterferencePredictor(zoo=zoo).fit(runs, solos).predict(runs)
    return time.perf_counter() - begun


class _Errors:
    """Errors of every prediction: of time as a share of it, of the interference rate in points."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}

    def add(self, split: str, member: str, asked: Sequence[CoRun], said: Sequence[Sequence[Any]]) -> None:
        """Compare predictions with what was measured; sides without a trustworthy label are left out."""
        for run, sides in zip(asked, said, strict=True):
            own = self._found.setdefault((split, member, run.device_type), [])
            for side, told in zip(run.sides, sides, strict=True):
                if run.status == "ok" and side.usable and side.speed is not None:
                    true_s, told_s = 1.0 / side.speed, 1.0 / told.mean
                    own.append((abs(told_s - true_s) / true_s, abs(told_s - true_s)))

    def _pooled(self, split: str, member: str, device: str = "") -> tuple[float, float, int] | None:
        found = [
            e
            for (s, m, d), errors in self._found.items()
            if (s, m) == (split, member) and device in ("", d)
            for e in errors
        ]
        if not found:
            return None
        time_share, rate = np.array(found).mean(axis=0)
        return 100.0 * float(time_share), 100.0 * float(rate), len(found)

    def of_time(self, split: str, member: str) -> float | None:
        """Mean error of time, in per cent."""
        found = self._pooled(split, member)
        return None if found is None else found[0]

    def extremes(self, split: str, members: Sequence[str]) -> tuple[float, float]:
        """The least and the largest error of time among fixed techniques."""
        found = [e for m in members if (e := self.of_time(split, m)) is not None]
        return min(found), max(found)

    def by_member(self) -> Table:
        """One row for each split and technique."""
        keys = dict.fromkeys((split, member) for split, member, _ in self._found)
        rows = [self._row(split, member) for split, member in keys]
        return Table(title="Every technique, fixed for all device types", rows=[r for r in rows if r])

    def by_device(self) -> Table:
        """The adaptive choice by device type."""
        keys = [key for key in self._found if key[1] == _ADAPTIVE]
        rows = [self._row(split, member, device) for split, member, device in keys]
        return Table(title="The adaptive choice by device type", rows=[r for r in rows if r])

    def _row(self, split: str, member: str, device: str = "") -> dict[str, Any]:
        found = self._pooled(split, member, device)
        if found is None:
            return {}
        named = {"split": split, "technique": member} | ({"device": device} if device else {})
        return named | {"error_of_time_%": found[0], "error_of_rate_points": found[1], "sides": found[2]}
