"""Measured runs as values: jobs alone, and jobs side by side on one device.

What was measured and what may be believed of it are kept apart. A side of a co-run carries the
speed as published together with marks: whether it is a trustworthy label, whether it is only a
lower bound (*censored*), whether the run alone that it is divided by is doubtful (*suspect*) or
was contradicted later (*disputed*). ``profiles.runsfile`` reads and writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

__all__ = ["CoRun", "CoSide", "JobConfig", "SoloRun", "Status", "pair_key"]

Status = Literal["ok", "failed", "failed_one_side", "unmeasured"]
"""What became of a co-run: all sides have a speed; none ran, as a rule for lack of memory; one
process died and the others went on without it; never tried."""


class JobConfig(msgspec.Struct, frozen=True, kw_only=True, order=True, gc=False):
    """A training job as it was configured.

    Parameters
    ----------
    model : str
    family : str
        Variants of one architecture share it; the model's name if empty.
    dataset : str
    batch : int
        Samples per device and iteration; 0 if it was not recorded.
    amp : int
        1 mixed precision, 0 not, -1 not recorded.
    num_gpus : int
    parallel : str
        How the model is split over devices, as the source writes it; empty for data parallelism.
    """

    model: str
    family: str = ""
    dataset: str = ""
    batch: int = 0
    amp: int = -1
    num_gpus: int = 1
    parallel: str = ""

    @property
    def group(self) -> str:
        """Family, or the model where none was given.

        >>> JobConfig(model="VGG-16").group
        'VGG-16'
        """
        return self.family or self.model

    @property
    def label(self) -> str:
        """Name for people and for forecasts: ``model/bBATCH`` and what else was configured.

        >>> JobConfig(model="ResNet-50", batch=32, amp=1, num_gpus=2).label
        'ResNet-50/b32+amp x2'
        """
        text = f"{self.model}/b{self.batch}" if self.batch else self.model
        if self.amp == 1:
            text += "+amp"
        if self.num_gpus > 1:
            text += f" x{self.num_gpus}"
        return f"{text} {self.parallel}" if self.parallel else text


class SoloRun(msgspec.Struct, frozen=True, kw_only=True):
    """A job alone on one device, or on as many as it asks for.

    Parameters
    ----------
    source : str
        Campaign.
    device_type : str
    job : JobConfig
    framework : str
    throughput : float or None
        Work per second, in ``unit``; None if it was not published.
    unit : str
    gpu_util, mem_util : float or None
        Per cent of the time in which the device was busy, and in which its memory was read or
        written; None if not measured, never 0 for that.
    mem_mib : float or None
        Device memory in use.
    fits : bool
        False if the job was found not to fit the device.
    counters : mapping of str to float
        Whatever else was measured: hardware counters, stage times, power.
    placement, note, licence : str
    """

    source: str
    device_type: str
    job: JobConfig
    framework: str = ""
    throughput: float | None = None
    unit: str = ""
    gpu_util: float | None = None
    mem_util: float | None = None
    mem_mib: float | None = None
    fits: bool = True
    counters: Mapping[str, float] = {}
    placement: str = ""
    note: str = ""
    licence: str = ""


class CoSide(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One job of a co-run.

    Parameters
    ----------
    job : JobConfig
    speed : float or None
        Speed while sharing over speed alone, as published; None if it cannot be computed.
    label_ok : bool
        Whether the speed is a trustworthy label.
    censored : bool
        Whether the speed is only a lower bound: upstream clipped it.
    suspect : bool
        Whether the run alone was measured too slow, so that every speed of the job is too high.
    disputed : bool
        Whether upstream itself later contradicted the run alone.
    placeholder : bool
        Whether the speed was assumed, not measured.
    throughput_solo, throughput_co : float or None
        Work per second, in ``unit``.
    unit : str
    gpu_util, mem_util, mem_mib : float or None
        Of the job alone, as in ``SoloRun``.
    """

    job: JobConfig
    speed: float | None = None
    label_ok: bool = True
    censored: bool = False
    suspect: bool = False
    disputed: bool = False
    placeholder: bool = False
    throughput_solo: float | None = None
    throughput_co: float | None = None
    unit: str = ""
    gpu_util: float | None = None
    mem_util: float | None = None
    mem_mib: float | None = None

    @property
    def usable(self) -> bool:
        """Whether the speed may be learnt from and judged by."""
        return self.label_ok and self.speed is not None and self.speed > 0


class CoRun(msgspec.Struct, frozen=True, kw_only=True):
    """Two or more jobs on the same device.

    Parameters
    ----------
    row_id : str
        Unique within a table.
    source : str
        Campaign.
    device_type : str
    device_mem_mib : float or None
        Nominal size of the card.
    framework : str
    sides : tuple of CoSide
        At least two; their order carries no meaning.
    status : {"ok", "failed", "failed_one_side", "unmeasured"}
    total_gpu_util, total_mem_util, total_mem_mib : float or None
        While all ran.
    licence : str
    """

    row_id: str
    source: str
    device_type: str
    sides: tuple[CoSide, ...]
    status: Status = "ok"
    device_mem_mib: float | None = None
    framework: str = ""
    total_gpu_util: float | None = None
    total_mem_util: float | None = None
    total_mem_mib: float | None = None
    licence: str = ""

    @property
    def fits(self) -> bool | None:
        """Whether the jobs ran side by side; None if that was not tried."""
        if self.status == "unmeasured":
            return None
        return self.status == "ok"

    @property
    def key(self) -> tuple[JobConfig, ...]:
        """The jobs, sorted: the same for every order, campaign and device type."""
        return pair_key(side.job for side in self.sides)

    @property
    def self_pair(self) -> bool:
        """Whether all jobs are copies of one configuration."""
        return len(set(self.key)) == 1

    def others(self, index: int) -> tuple[CoSide, ...]:
        """The sides beside this one."""
        return self.sides[:index] + self.sides[index + 1 :]


def pair_key(jobs: Iterable[JobConfig]) -> tuple[JobConfig, ...]:
    """Jobs in one order, whatever order they came in."""
    return tuple(sorted(jobs))
