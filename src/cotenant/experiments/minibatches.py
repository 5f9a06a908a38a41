"""EasyScale's eight training jobs: how long a mini-batch takes on three device types, and what a job of them needs.

Times are the artifact's (github.com/sUntvoOk/EasyScale_info_for_SC23, tables ``overall-overhead/overhead.csv``,
``EST-overhead/plot/context_switch.csv`` and ``EST-overhead/plot/gradient_worker.csv``). The logs that its
simulator reads are not part of it, so times at other batch sizes follow from two measured ones, as its simulator
does: on a straight line.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cotenant.model.ports import Interval

__all__ = ["JOBS", "SYNC", "TYPES", "Application", "Speeds", "mini_batch_s", "model_of"]

TYPES = ("V100", "P100", "T4")
SYNC = 0.77
"""Calibrated on one published number that no elastic scheduler has a part in, the makespan of YARN-CS."""


class Application(NamedTuple):
    """One kind of training job.

    Parameters
    ----------
    batch : int
        Batch size of ``fixed_s`` and ``neutral_s``.
    fixed_s : tuple of float
        A mini-batch on V100, P100 and T4 with deterministic kernels (grade D1).
    neutral_s : tuple of float
        The same with kernels that are the same on all types (grade D2).
    larger, larger_s : int, float
        Another batch size, and the time there on V100 (D1).
    sync_s : float
        What synchronising the gradients of 8 workers adds to a mini-batch, at the larger batch size.
    samples : float
        Samples in an epoch, as the artifact's simulator counts them (a hundredth of the data set).
    """

    batch: int
    fixed_s: tuple[float, float, float]
    neutral_s: tuple[float, float, float]
    larger: int
    larger_s: float
    sync_s: float
    samples: float


JOBS = {
    "shufflenetv2": Application(
        128, (0.2167, 0.3310, 0.4022), (0.4697, 0.8722, 0.6782), 256, 0.3350, 0.1201, 12800.0
    ),
    "resnet50": Application(
        64, (0.2688, 0.4393, 0.6591), (0.5860, 1.1595, 1.2230), 128, 0.5078, 0.3638, 12800.0
    ),
    "vgg19": Application(32, (0.3924, 0.6514, 0.9439), (1.1327, 2.0655, 2.2755), 64, 0.7755, 0.3630, 12800.0),
    "yolov3": Application(8, (0.4590, 0.7169, 0.8133), (0.5491, 0.9833, 1.0355), 0, 0.0, 0.1312, 165.51),
    "ncf": Application(
        1024, (0.0105, 0.0130, 0.0110), (0.0107, 0.0127, 0.0118), 16384, 0.0151, 0.0161, 49708.45
    ),
    "bert": Application(8, (0.4406, 0.6007, 0.6819), (0.4390, 0.5998, 0.6661), 16, 0.6511, 0.1782, 886.41),
    "electra": Application(8, (0.4418, 0.6023, 0.6853), (0.4433, 0.5958, 0.6654), 16, 0.6457, 0.1993, 886.41),
    "swintransformer": Application(
        32, (0.4114, 0.5945, 0.5974), (0.4289, 0.5941, 0.6153), 64, 0.6029, 0.0635, 12800.0
    ),
}
"""By the names that the artifact's workload uses."""


def mini_batch_s(name: str, batch: int, kind: str, *, neutral: bool, sync: float = SYNC) -> float:
    """Seconds of a mini-batch of a given size on a device type.

    Parameters
    ----------
    neutral : bool
        With the kernels of grade D2.
    sync : float
        How much of the time that 8 workers took to synchronise gradients is part of it; the same on each type
        and at each batch size.

    Examples
    --------
    >>> round(mini_batch_s("bert", 16, "V100", neutral=False, sync=0.0), 4)
    0.6511
    """
    job, column = JOBS[name], TYPES.index(kind)
    at_8 = job.fixed_s[0]
    if job.larger:
        here = at_8 + (job.larger_s - at_8) * (batch - job.batch) / (job.larger - job.batch)
    else:
        here = at_8 * batch / job.batch
    times = job.neutral_s if neutral else job.fixed_s
    return times[column] * here / at_8 + job.sync_s * sync


def model_of(name: str, batch: int, *, neutral: bool) -> str:
    """Model key of a job in a workload.

    >>> model_of("bert", 16, neutral=True)
    'bert/b16/D2'
    """
    return f"{name}/b{batch}/{'D2' if neutral else 'D1'}"


class Speeds:
    """Speed of each job alone on each type, relative to V100: truth and forecast in one, as the artifact's profiles are both.

    Parameters
    ----------
    sync : float
        See ``mini_batch_s``.
    """

    version = 0

    def __init__(self, *, sync: float = SYNC) -> None:
        self._sync = sync

    def solo_speed(self, model: str, device_type: str) -> float:
        """Speed alone."""
        name, batch, grade = model.split("/")
        times = [
            mini_batch_s(name, int(batch[1:]), kind, neutral=grade == "D2", sync=self._sync)
            for kind in ("V100", device_type)
        ]
        return times[0] / times[1]

    def co_speed(self, model: str, beside: tuple[str, ...], device_type: str) -> Any:
        """Nobody shares a device here."""
        return Interval(1.0, 1.0, 1.0)

    def source(self, model: str, beside: tuple[str, ...], device_type: str) -> str:
        """From the artifact's tables."""
        return "measured"

    def describe(self) -> dict[str, Any]:
        """For the log."""
        return {"kind": "EasyScale artifact's mini-batch times", "sync": self._sync}
