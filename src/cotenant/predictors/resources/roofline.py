"""Analytic use of a device by a training step: needs a datasheet and no training.

For every group of kernels (``work``) the device takes the longer of arithmetic and memory
time, plus what any kernel costs however small; this is *busy* time. Meanwhile the host launches
one kernel after the other and does what a step needs besides. Both overlap, but not perfectly,
since a step begins with an empty queue:

    iteration = (busy**overlap + host**overlap) ** (1 / overlap)

Utilisation is busy over iteration, what NVML calls utilisation. After the roofline model of
Williams, Waterman and Patterson (Communications of the ACM 52(4), 2009), with a cost of launch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from cotenant.model.quantities import MIB
from cotenant.predictors.resources.work import StepWork
from cotenant.profiles.catalogue import Datasheet, canonical_type, datasheet
from cotenant.profiles.graph.contexts import context_of

__all__ = ["DEFAULT", "HOST", "DeviceRates", "Efficiency", "StepTimes", "rates_of", "step_times"]

Array = NDArray[np.float64]

_KINDS = {"convolution": 0, "matrix": 1, "other": 2}
_CPU = re.compile(r"cpu|epyc|xeon|core|ryzen|neoverse| x\d+$", re.IGNORECASE)
"""Names of CPU core sets, as ``measure`` writes them: the processor and how many cores."""
_CONTEXT_MIB = context_of(None).p50_bytes / MIB
_CORE_GFLOPS, _CORE_GBS = 100.0, 10.0
"""Nominal rates of a device that nobody knows, as a core of a CPU has; fitting scales them."""


class Efficiency(msgspec.Struct, frozen=True, kw_only=True):
    """The few factors between a datasheet and what a training step gets.

    The values of this class are guesses to start from; ``DEFAULT`` is fitted.

    Parameters
    ----------
    convolution, matrix : float
        Share of the peak rate that these kernels reach.
    bandwidth : float
        Share of the peak bandwidth.
    kernel_us : float
        What a kernel takes beyond the roofline.
    forward_us, backward_us, update_us : float
        Host time to launch one operator of either pass, and one kernel of the optimiser.
    step_ms : float
        Host time of a step whatever the model: batch handed over, gradients cleared, loss read.
    overlap : float
        1: host and device take turns; large: the slower one alone counts.
    convolution_traffic, other_traffic : float
        Bytes that really go through memory over those of the operators' operands.
    cache : float
        Share of the last-level cache that a kernel finds filled with its operands.
    context_mib : float
        Memory of a process besides its tensors.
    """

    convolution: float = 0.5
    matrix: float = 0.4
    bandwidth: float = 0.8
    kernel_us: float = 5.0
    forward_us: float = 30.0
    backward_us: float = 14.0
    update_us: float = 12.0
    step_ms: float = 3.0
    overlap: float = 2.0
    convolution_traffic: float = 1.5
    other_traffic: float = 1.0
    cache: float = 0.5
    context_mib: float = 430.0


DEFAULT = Efficiency(
    convolution=0.631,
    matrix=0.397,
    bandwidth=0.800,
    kernel_us=5.03,
    forward_us=30.8,
    backward_us=14.3,
    update_us=12.5,
    step_ms=3.93,
    overlap=1.98,
    convolution_traffic=1.77,
    other_traffic=1.23,
    cache=0.464,
)
"""Fitted from ``Efficiency()`` on solo throughputs on K80, P100 and V100, and memory throughputs
of device-bound networks on V100, all of stanford-futuredata/gavel (MIT); of several campaigns
the fastest, as the least hindered, without A3C, which plays its game on the host:
``python -m bench.resources_error factors``."""


HOST = Efficiency(
    convolution=0.539,
    matrix=0.643,
    bandwidth=0.769,
    kernel_us=6.51,
    context_mib=314.0,
)
"""For sets of CPU cores with rates that were reached (``profiles.corerates``), not datasheets: fitted, from
``DEFAULT``, on the runs alone of the campaign on a core that comes with the package (8 runs, 6 families):
``python -m bench.cpu_roofline factors``."""


class DeviceRates(msgspec.Struct, frozen=True, kw_only=True):
    """What of a device type enters the roofline.

    Parameters
    ----------
    name : str
    convolution_flops, matrix_flops : dict of str to float
        Peak FLOP/s by the precision of a step. PyTorch lets convolutions of 32 bits run on
        TF32 units and products not, unless told otherwise.
    bandwidth : float
        Bytes/s.
    cache_bytes : float
    memory_bytes : int
        0 if nobody knows.
    host : bool
        Whether the device is the host itself: nothing overlaps, and it is always busy.
    known : bool
        False for a type that the catalogue lacks: rates are nominal until a fit scales them.
    """

    name: str
    convolution_flops: dict[str, float]
    matrix_flops: dict[str, float]
    bandwidth: float
    cache_bytes: float = 0.0
    memory_bytes: int = 0
    host: bool = False
    known: bool = True


def rates_of(device_type: str) -> DeviceRates:
    """Rates of a type of the catalogue, or nominal ones.

    Examples
    --------
    >>> rates_of("V100").matrix_flops["fp32"], rates_of("A100").convolution_flops["fp32"]
    (15700000000000.0, 156000000000000.0)
    """
    if canonical_type(device_type) is None:
        rates = dict.fromkeys(("fp32", "tf32", "amp", "bf16", "fp16"), _CORE_GFLOPS * 1e9)
        return DeviceRates(
            name=device_type,
            convolution_flops=rates,
            matrix_flops=rates,
            bandwidth=_CORE_GBS * 1e9,
            host=bool(_CPU.search(device_type)),
            known=False,
        )
    sheet = datasheet(device_type)
    return DeviceRates(
        name=sheet.name,
        convolution_flops=_rates(sheet, "tf32" if "tf32" in sheet.tflops else "fp32"),
        matrix_flops=_rates(sheet, "fp32"),
        bandwidth=sheet.bandwidth_gbs * 1e9,
        cache_bytes=sheet.cache_mib * 2**20,
        memory_bytes=sheet.memory_bytes,
        host=sheet.host,
    )


def _rates(sheet: Datasheet, single: str) -> dict[str, float]:
    # Sums are kept in 32 bits in training; the catalogue's bf16 rate is the one with such sums.
    half = sheet.peak_tflops("bf16") * 1e12
    return {
        "fp32": sheet.peak_tflops(single) * 1e12,
        "tf32": sheet.peak_tflops("tf32") * 1e12,
        "amp": half,
        "bf16": half,
        "fp16": half,
    }


class StepTimes(msgspec.Struct, frozen=True):
    """What the roofline says of n steps.

    Parameters
    ----------
    busy_s, host_s, moving_s, iteration_s : ndarray, shape (n,)
        Device busy, host busy, device memory busy, and the whole iteration.
    traffic_bytes : ndarray, shape (n,)
        Through device memory.
    memory_mib : ndarray, shape (n,)
        Held on the device.
    """

    busy_s: Array
    host_s: Array
    moving_s: Array
    iteration_s: Array
    traffic_bytes: Array
    memory_mib: Array

    @property
    def gpu_util(self) -> Array:
        """Per cent of an iteration in which the device is busy, shape (n,)."""
        return 100.0 * np.minimum(self.busy_s / self.iteration_s, 1.0)

    @property
    def mem_util(self) -> Array:
        """Per cent of an iteration in which its memory is read or written, shape (n,)."""
        return 100.0 * np.minimum(self.moving_s / self.iteration_s, 1.0)


class Steps:
    """Works on devices as arrays, laid out once and timed many times.

    Parameters
    ----------
    works : sequence of StepWork
    rates : sequence of DeviceRates
        As many.
    """

    def __init__(self, works: Sequence[StepWork], rates: Sequence[DeviceRates]) -> None:
        groups = [
            (row, _KINDS[g.kind], g.count, g.flops, g.moved_bytes)
            for row, work in enumerate(works)
            for g in work.groups
        ]
        columns = np.array(groups, float).reshape(len(groups), 5).T
        self.n = len(works)
        self.row, self.kind = columns[0].astype(np.intp), columns[1].astype(np.intp)
        self.count, self.flops, self.moved = columns[2:]
        peaks = [
            (r.convolution_flops[w.precision], r.matrix_flops[w.precision], 1.0)
            for w, r in zip(works, rates, strict=True)
        ]
        self.peak = np.array(peaks, float).reshape(self.n, 3)[self.row, self.kind]
        self.bandwidth = np.array([r.bandwidth for r in rates], float)
        self.cache = np.array([r.cache_bytes for r in rates], float)
        self.is_host = np.array([r.host for r in rates], bool)
        self.update_bytes = np.array([w.update_bytes for w in works], float)
        self.updates = np.array([w.updates for w in works], float)
        self.forward = np.array([w.forward for w in works], float)
        self.backward = np.array([w.backward for w in works], float)
        self.tensors_mib = np.array([_tensors_mib(w) for w in works], float)

    def _group_s(self, e: Efficiency) -> Array:
        """Device time of each group of kernels, without what any kernel costs."""
        reached = np.array([e.convolution, e.matrix, 1.0])[self.kind]
        rate = e.bandwidth * self.bandwidth[self.row]
        compute = np.where(self.kind == 2, 0.0, self.flops / (self.peak * reached))
        return np.asarray(np.maximum(compute, self.moved / rate))

    def kernel_s(self, e: Efficiency = DEFAULT) -> tuple[Array, Array]:
        """How long a kernel is: the mean, and the mean weighted by length, each of shape (n,).

        The latter is how long the kernel is that one finds running at a random moment. The
        optimiser's kernels count for the mean alone.
        """
        each = self._group_s(e) + self.count * e.kernel_us * 1e-6
        total = self._sum(each)
        update_s = self.update_bytes / (e.bandwidth * self.bandwidth) + self.updates * e.kernel_us * 1e-6
        mean = (total + update_s) / np.maximum(self._sum(self.count) + self.updates, 1.0)
        weighted = self._sum(each * each / np.maximum(self.count, 1.0)) / np.maximum(total, 1e-12)
        return mean, weighted

    def times(self, e: Efficiency = DEFAULT) -> StepTimes:
        """Times of all of them."""
        each = self._group_s(e)
        update_s = self.update_bytes / (e.bandwidth * self.bandwidth)
        busy = (
            self._sum(each + self.count * e.kernel_us * 1e-6) + update_s + self.updates * e.kernel_us * 1e-6
        )
        traffic = np.array([e.convolution_traffic, e.other_traffic, e.other_traffic])[self.kind]
        through = np.maximum(traffic * self.moved - self.count * e.cache * self.cache[self.row], 0.0)
        bytes_ = self._sum(through) + self.update_bytes
        moving = np.minimum(bytes_ / (e.bandwidth * self.bandwidth), busy)
        launches = e.forward_us * self.forward + e.backward_us * self.backward + e.update_us * self.updates
        host = launches * 1e-6 + e.step_ms * 1e-3
        overlapped = (busy**e.overlap + host**e.overlap) ** (1.0 / e.overlap)
        whole = np.where(self.is_host, busy, overlapped)
        memory = self.tensors_mib + e.context_mib
        return StepTimes(busy, np.where(self.is_host, 0.0, host), moving, whole, bytes_, memory)

    def _sum(self, values: Array) -> Array:
        return np.bincount(self.row, weights=values, minlength=self.n).astype(np.float64)


def _tensors_mib(work: StepWork) -> float:
    """Memory without the process's own: what the memory model says less the context it counts."""
    if work.memory_bytes:
        return max(work.memory_bytes / MIB - _CONTEXT_MIB, 1.0)
    return max(work.peak_bytes / MIB, 1.0)


def step_times(
    works: Sequence[StepWork], rates: Sequence[DeviceRates], efficiency: Efficiency = DEFAULT
) -> StepTimes:
    """What n steps take of n devices.

    Examples
    --------
    1 TFLOP of products at 40% of a V100's 15.7 TFLOP/s:

    >>> from cotenant.predictors.resources.work import KernelGroup, StepWork
    >>> work = StepWork(name="mm", batch=1, groups=(KernelGroup("matrix", 9, 1, 1e12, 1e9),))
    >>> free = Efficiency(kernel_us=0.0, step_ms=0.0, forward_us=0.0)
    >>> times = step_times([work], [rates_of("V100")], free)
    >>> round(float(times.iteration_s[0]), 4), float(times.gpu_util[0])
    (0.1592, 100.0)
    """
    return Steps(works, rates).times(efficiency)
