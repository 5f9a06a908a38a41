"""Cases C15, C16, C19, C20 and C36 with processes in place of simulated jobs: what is really launched, and where."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.errors import ConfigError, InfeasibleError
from cotenant.live.admission import admit
from cotenant.live.tenants import ADMIN, Tenants
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.plan import Reason
from cotenant.model.quantities import MIB
from cotenant.model.settings import Settings
from cotenant.policies.colocate import Colocate
from cotenant.policies.packing import BestFit
from cotenant.policies.srtf import Srtf
from cotenant.testing import FixedForecast

Make = Any


def card(name: str, mib: int) -> DeviceType:
    return DeviceType(name=name, memory_bytes=mib * MIB)


@pytest.mark.parametrize("at_once", [True, False])
def test_c15_of_three_halves_two_are_launched_and_the_third_waits(machine: Make, *, at_once: bool) -> None:
    m = machine(BestFit)  # 24 GiB
    jobs = []
    for number in range(3):
        jobs.append(m.submit(f"half-{number}", gib=12, gpu_compute="10%"))
        if not at_once:
            m.to(5.0 * (number + 1))
    m.to(60.0)
    assert m.runs() == jobs[:2]
    assert [launch.id for launch in m.launched] == jobs[:2]
    assert m.state.ledger.free_memory[0] == 0
    assert jobs[2] in m.state.records
    m.ask("cancel", id=jobs[0])
    m.to(120.0)
    assert m.runs() == jobs[1:]


@pytest.mark.parametrize(
    ("size", "mib"),
    [("80GB", 76_294), ("79.6GiB", 81_511), ("81559MiB", 81_559)],
)
def test_c16_a_size_is_understood_by_its_unit(tmp_path: Any, size: str, mib: int) -> None:
    cluster = Cluster(types=(card("a", 81_559),), nodes=(Node(name="here", gpus=(("a", 1),)),))
    job = admit({"name": "j", "command": ["x"], "gpu_memory": size}, ADMIN, Tenants(tmp_path), cluster)
    assert -(-job.memory_bytes // MIB) == mib


def test_c16_too_much_is_refused_with_both_numbers_and_no_unit_is_an_error(tmp_path: Any) -> None:
    cluster = Cluster(types=(card("a", 81_559),), nodes=(Node(name="here", gpus=(("a", 1),)),))
    body = {"name": "j", "command": ["x"]}
    with pytest.raises(InfeasibleError, match=r"81,920 MiB of memory asked .* largest device has 81,559 MiB"):
        admit({**body, "gpu_memory": "80GiB"}, ADMIN, Tenants(tmp_path), cluster)
    with pytest.raises(ConfigError, match="has no unit"):
        admit({**body, "gpu_memory": "81559"}, ADMIN, Tenants(tmp_path), cluster)


def test_c19_each_card_of_a_mixed_machine_has_its_own_size(machine: Make) -> None:
    mixed = Cluster(
        types=(card("A", 46_068), card("B", 15_360)), nodes=(Node(name="n1", gpus=(("A", 1), ("B", 1))),)
    )
    m = machine(BestFit, cluster=mixed)
    sizes = (20_000, 16_000, 15_000, 15_000)
    jobs = [m.submit(f"j{mib}", gpu_memory=f"{mib}MiB", gpu_compute="10%") for mib in sizes]
    m.to(60.0)
    assert m.runs() == jobs[:3]
    places = {launch.id: launch.devices for launch in m.launched}
    assert [places[j] for j in jobs[:3]] == [(0,), (0,), (1,)]
    assert [size // MIB for size in m.state.ledger.free_memory] == [10_068, 360]
    assert jobs[3] in m.state.records


def test_c20_ten_tenths_make_one_and_nothing_is_left_over(machine: Make) -> None:
    m = machine(BestFit, settings=Settings(min_quantum_s=0.0, max_sharers=16))
    jobs = [m.submit(f"j{number}", gib=1, gpu_compute="10%", runs_s=100.0) for number in range(11)]
    m.to(30.0)
    assert m.runs() == jobs[:10]
    assert m.state.ledger.free_milli[0] == 0
    m.to(1000.0)
    assert [(e.id, e.outcome) for e in m.log(ev.Ended) if e.final and e.outcome != "done"] == []
    assert len(m.log(ev.Ended)) == 11
    assert m.state.ledger.free_milli[0] == 1000


def test_c36_what_the_first_victim_leaves_is_kept_until_the_last_one_is_gone(machine: Make) -> None:
    m = machine(Srtf, gpus=4)
    slow = {"suspend": "runtime", "time_limit": "100h"}
    victims = [m.submit(name, gib=20, gpus=2, sharing="exclusive", **slow) for name in ("wA", "wB")]
    m.to(400.0)
    assert m.runs() == victims
    m.process(victims[1]).deaf = True  # it hears nothing, and has to be killed
    p = m.submit("p", gib=20, gpus=4, sharing="exclusive", time_limit="1min", runs_s=30.0)
    m.to(2000.0)
    gone = {e.id: e.t for e in m.log(ev.Suspended, ev.Ended) if e.id in victims}
    starts = [(e.id, e.t) for e in m.log(ev.Started)]
    began = next(t for job, t in starts if job == p)
    assert began >= max(gone.values()) > min(gone.values())
    # Neither came back before p had its devices.
    assert [job for job, t in starts if t < began] == victims


def test_a_job_without_enough_compute_beside_others_is_not_told_that_it_is_memory(machine: Make) -> None:
    m = machine(Colocate)
    m.loop.view._forecast = FixedForecast(default=0.95)
    first = [m.submit(f"j{number}", gib=1, gpu_compute="40%") for number in range(2)]
    third = m.submit("third", gib=1, gpu_compute="40%")
    m.to(5.0)
    assert m.runs() == first
    held = m.log(ev.Held)[-1]
    assert (held.id, held.reason) == (third, Reason.COMPUTE)
