"""EasyScale's 68 elastic jobs: read from the artifact where it is at hand, else drawn anew like them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from cotenant.errors import InputError
from cotenant.experiments.minibatches import JOBS, SYNC, mini_batch_s, model_of
from cotenant.model.workload import Workload

__all__ = ["Elastic", "as_workload", "drawn", "read"]


class Elastic(NamedTuple):
    """One job of the workload: which application, how many logical workers, how long, and where."""

    name: str
    submit_s: float
    application: str
    workers: int
    batch: int
    epochs: float
    neutral: bool
    preferred: str


def read(folder: Path) -> list[Elastic]:
    """The artifact's ``simulator/workloads/test.csv``, below this folder or in it.

    Rows of the same name are one job, as the artifact's simulator has it: the last row's values in the
    first one's place. So 62 of the 68 rows are simulated.

    Raises
    ------
    InputError
        If the file is not there or is another.
    """
    places = [folder / p / "test.csv" for p in ("simulator/workloads", "workloads", ".")]
    path = next((p for p in places if p.is_file()), None)
    if path is None:
        raise InputError(f"{folder} does not hold simulator/workloads/test.csv of EasyScale's artifact")
    found: dict[str, Elastic] = {}
    with path.open(newline="") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            try:
                found[row["name"]] = Elastic(
                    row["name"],
                    float(row["time"]),
                    row["application"],
                    int(row["max_parallelism"]),
                    int(row["batch_size"]),
                    float(row["epochs"]),
                    row["enable_heterogeneous_deterministic"] != "0",
                    row["preferred_gpu"].upper(),
                )
                JOBS[row["application"]]
            except (KeyError, ValueError) as error:
                raise InputError(
                    f"{path}, line {number}: not a row of EasyScale's workload ({error}); columns are name, time, "
                    "application, max_parallelism, batch_size, epochs, enable_heterogeneous_deterministic, "
                    "preferred_gpu"
                ) from error
    return list(found.values())


def as_workload(jobs: list[Elastic], *, pinned: bool, sync: float = SYNC) -> Workload:
    """The jobs for the simulator: elastic from one device to one for each worker.

    Parameters
    ----------
    pinned : bool
        Every job asks for its preferred type. Otherwise those of grade D2 take any.
    """
    rows = []
    for job in sorted(jobs, key=lambda j: j.submit_s):
        each_s = mini_batch_s(job.application, job.batch, "V100", neutral=job.neutral, sync=sync)
        steps = job.epochs * JOBS[job.application].samples / (job.batch * job.workers)
        rows.append(
            {
                "name": job.name,
                "submit_s": job.submit_s,
                "duration_s": steps * each_s,
                "gpus": job.workers,
                "min_gpus": 1,
                "max_gpus": job.workers,
                "model": model_of(job.application, job.batch, neutral=job.neutral),
                "device_types": [job.preferred] if pinned or not job.neutral else [],
                "determinism": "D2" if job.neutral else "D1",
                "job_class": "opportunistic",
            }
        )
    frame = pl.DataFrame(rows, schema_overrides={"device_types": pl.List(pl.String)})
    return Workload(frame, name="easyscale")


class _Mix(NamedTuple):
    """What all jobs of one application have in common: counts and ranges only.

    ``gangs`` are (workers, preferred type, how many), ``batches`` (size, how many), ``epochs`` least, most and sum.
    """

    application: str
    neutral: bool
    gangs: tuple[tuple[int, str, int], ...]
    batches: tuple[tuple[int, int], ...]
    epochs: tuple[int, int, int]


_MIX = (
    _Mix(
        "shufflenetv2",
        False,
        ((8, "P100", 1), (8, "T4", 1), (32, "V100", 1)),
        ((64, 2), (128, 1)),
        (2, 20, 32),
    ),
    _Mix(
        "resnet50",
        False,
        ((8, "T4", 1), (16, "P100", 3), (16, "V100", 1), (32, "V100", 9)),
        ((32, 2), (64, 6), (128, 6)),
        (2, 20, 86),
    ),
    _Mix("vgg19", False, ((8, "P100", 1), (32, "V100", 1)), ((32, 1), (64, 1)), (6, 50, 56)),
    _Mix(
        "yolov3",
        False,
        ((8, "P100", 1), (16, "V100", 5), (32, "V100", 1)),
        ((2, 1), (4, 4), (8, 2)),
        (4, 200, 668),
    ),
    _Mix("ncf", True, ((16, "V100", 1), (32, "V100", 3)), ((1024, 3), (4096, 1)), (4, 400, 1204)),
    _Mix(
        "bert",
        True,
        ((8, "P100", 1), (8, "T4", 1), (8, "V100", 4), (16, "P100", 2), (16, "V100", 1), (32, "V100", 6)),
        ((4, 1), (8, 6), (16, 8)),
        (3, 100, 466),
    ),
    _Mix(
        "electra", True, ((16, "P100", 2), (16, "V100", 2), (32, "V100", 9)), ((4, 6), (8, 7)), (1, 100, 486)
    ),
    _Mix("swintransformer", True, ((32, "V100", 3),), ((16, 2), (32, 1)), (90, 92, 274)),
)
_LONG = Elastic("electra-long", 230.0, "electra", 4, 4, 200.0, True, "V100")
"""By far the longest, and on no more than four devices: it decides the makespan, and who queues behind it."""
_FIRST_S, _LAST_S = 115.0, 4814.0


def drawn(seed: int) -> list[Elastic]:
    """Sixty-two jobs that agree with the artifact's in counts and ranges, the rest drawn.

    For each application: how many jobs, of how many workers, on which preferred type, at which batch
    sizes, and the sum of epochs. Drawn: which goes with which, epochs (log-uniform between least and most,
    then scaled to the sum), and times of submission (uniform).
    """
    rng = np.random.default_rng((seed, 68))
    jobs = [_LONG]
    for mix in _MIX:
        gangs = [(workers, kind) for workers, kind, count in mix.gangs for _ in range(count)]
        batches = rng.permutation([size for size, count in mix.batches for _ in range(count)])
        least, most, total = mix.epochs
        epochs = np.exp(rng.uniform(np.log(least), np.log(most), len(gangs)))
        epochs *= total / epochs.sum()
        submits = rng.uniform(_FIRST_S, _LAST_S, len(gangs))
        for number, (workers, kind) in enumerate(gangs):
            jobs.append(
                Elastic(
                    f"{mix.application}-{number}",
                    float(submits[number]),
                    mix.application,
                    workers,
                    int(batches[number]),
                    float(epochs[number]),
                    mix.neutral,
                    kind,
                )
            )
    return jobs
