"""Job files and incident files: what people write, read strictly."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from cotenant.errors import ConfigError, InfeasibleError
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.quantities import GIB
from cotenant.model.workload import Workload
from cotenant.runs.incidents import read_incidents
from cotenant.runs.jobfile import check_fits, job_of, read_job

CLUSTER = Cluster(
    nodes=(Node(name="n0", gpus=(("big", 2),)), Node(name="n1", gpus=(("small", 4),))),
    types=(DeviceType(name="big", memory_bytes=80 * GIB), DeviceType(name="small", memory_bytes=16 * GIB)),
    tenants=(Tenant(name="vision"),),
)
WORKLOAD = Workload(pl.DataFrame({"name": ["x", "y"], "submit_s": [0.0, 1.0], "duration_s": [5.0, 5.0]}))


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_job_file_gives_a_job_in_bytes_and_thousandths(tmp_path: Path) -> None:
    job = read_job(
        write(
            tmp_path / "job.toml",
            'name = "resnet-a"\ncommand = ["python", "train.py"]\ngpus = 2\ngpu_memory = "6GiB"\n'
            'gpu_compute = "40%"\nsharing = "trusted"\ntime_limit = "2h"\n'
            '[elastic]\nmin_gpus = 1\nmax_gpus = 4\ndeterminism = "D1"\n',
        )
    )
    assert (job.gpus, job.memory_bytes, job.compute_milli, job.estimate_s) == (2, 6 * GIB, 400, 7200.0)
    assert (job.min_gpus, job.max_gpus, job.determinism, job.sharing) == (1, 4, "D1", "trusted")


def test_an_elastic_job_that_names_no_gpus_starts_with_its_least(tmp_path: Path) -> None:
    text = 'name = "a"\n{}[elastic]\nmin_gpus = 2\nmax_gpus = 4\n'
    assert read_job(write(tmp_path / "a.toml", text.format(""))).gpus == 2
    assert read_job(write(tmp_path / "b.toml", text.format("gpus = 3\n"))).gpus == 3
    body = {"name": "a", "elastic": {"min_gpus": 2, "max_gpus": 2}}
    asked, job = job_of(body)
    assert (asked.gpus, job.gpus, job.min_gpus, job.max_gpus) == (2, 2, 2, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "a"\ngpu_memory = 6\n', "has no unit"),
        ('name = "a"\ngpu_memory = "6 parsecs"\n', "unknown unit 'parsecs'"),
        ('name = "a"\ngpu_compute = "140%"\n', "at most 100%"),
        ('name = "a"\ngpus = -1\n', "gpus must be zero or more"),
        ('name = " "\n', "needs a name"),
        ('name = "a"\ngpu_memroy = "6GiB"\n', "did you mean 'gpu_memory'"),
        ('name = "a"\ngpus = 2\n[elastic]\nmin_gpus = 3\nmax_gpus = 4\n', "min_gpus <= gpus"),
        ('name = "a"\n[elastic]\ndeterminism = "D2"\n', "write D1, D0 or none"),
        ('name = "a"\nsharing = "all"\n', "sharing"),
        ('name = "a"\ngpus = nan\n', "gpus must be a number of devices, found nan"),
        ('name = "a"\ngpus = inf\n', "gpus must be a number of devices, found inf"),
    ],
)
def test_a_wrong_job_file_names_file_key_and_what_to_do(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_job(write(tmp_path / "job.toml", text))
    assert message in str(caught.value)
    assert "job.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('gpu_memory = "81GiB"', r"82,944 MiB of memory asked.*largest device has 81,920 MiB"),
        ("gpus = 7", "7 devices asked, 6 of 6 could hold it"),
        ('gpus = 3\ngpu_memory = "20GiB"', "3 devices asked, 2 of 6 could hold it"),
        ('device_types = ["H100"]', "asks for device type H100; the cluster has big, small"),
    ],
)
def test_a_job_that_never_fits_is_told_why(tmp_path: Path, text: str, message: str) -> None:
    job = read_job(write(tmp_path / "job.toml", f'name = "a"\n{text}\n'))
    with pytest.raises(InfeasibleError, match=message):
        check_fits(job, CLUSTER)


def test_a_job_that_fits_passes(tmp_path: Path) -> None:
    check_fits(read_job(write(tmp_path / "j.toml", 'name = "a"\ngpus = 2\ngpu_memory = "80GiB"\n')), CLUSTER)


def test_incidents_come_out_by_time_with_numbers_for_names(tmp_path: Path) -> None:
    path = write(
        tmp_path / "i.toml",
        '[[incident]]\nkind = "node-down"\nat = "2h"\nnode = "n1"\ncause = "power"\nlasts = "30min"\n'
        '[[incident]]\nkind = "device-down"\nat = "1h"\nnode = "n1"\nslot = 3\n'
        '[[incident]]\nkind = "cancel"\nat = "10s"\njob = "y"\n'
        '[[incident]]\nkind = "tenant-limit"\nat = "5s"\ntenant = "vision"\nlimit_gpus = 2\n',
    )
    assert read_incidents(path, CLUSTER, WORKLOAD) == (
        ev.TenantLimitChanged(5.0, "vision", 2),
        ev.CancelRequested(10.0, 1),
        # n0 has devices 0 and 1, so slot 3 of n1 is device 5.
        ev.DeviceDown(3600.0, 5),
        ev.NodeDown(7200.0, 1, "power"),
        ev.NodeUp(9000.0, 1),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('kind = "node-down"\nat = "2h"\nnode = "n9"', 'no node "n9"'),
        ('kind = "device-down"\nat = "2h"\nnode = "n0"\nslot = 2', "slots 0 to 1, found slot = 2"),
        ('kind = "cancel"\nat = "2h"\njob = "z"', 'no job "z"'),
        ('kind = "priority"\nat = "2h"\njob = "x"', "needs priority"),
        (
            'kind = "tenant-limit"\nat = "2h"\ntenant = "audio"\nlimit_gpus = 1',
            'no tenant "audio"; known: vision',
        ),
        ('kind = "node-down"\nat = "2"\nnode = "n0"', "no known unit"),
        ('kind = "node-up"\nat = "2h"\nnode = "n0"\nlasts = "1h"', "does not last"),
        ('kind = "explode"\nat = "2h"', "kind"),
    ],
)
def test_a_wrong_incident_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_incidents(write(tmp_path / "i.toml", f"[[incident]]\n{text}\n"), CLUSTER, WORKLOAD)
    assert message in str(caught.value)
