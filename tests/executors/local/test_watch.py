"""Devices themselves: processes that are none of ours, readings that cannot be, devices that go and come back."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

import pytest
from hostlab import Lab, core_devices, cores, job, wait_for

from cotenant.errors import ConfigError
from cotenant.executors.local.devices import DeviceInfo
from cotenant.executors.local.watch import DeviceWatch
from cotenant.model.liveports import DeviceGone, Foreign
from cotenant.profiles.samplers.readings import DeviceReading, Failure, ProcessReading, Snapshot
from cotenant.shares.backends.base import Applied, Want
from cotenant.shares.backends.plain import DutyCycleBackend

MIB = 1 << 20
CARDS = {
    n: DeviceInfo(device=n, name=f"gpu{n}", uuid=f"GPU-{n}", kind="nvidia", memory_bytes=24_576 * MIB)
    for n in (0, 1)
}


class Driver:
    """Says what the test wants, as NVML would."""

    def __init__(self) -> None:
        self.used: dict[str, float | None] = {"GPU-0": 400.0, "GPU-1": 400.0}
        self.processes: list[tuple[str, int, float | None]] = []
        self.failures: tuple[Failure, ...] = ()
        self.broken = ""
        self.closed = 0

    def read(self, pids: Sequence[int] = ()) -> Snapshot:
        del pids
        if self.broken:
            raise ConfigError(self.broken)
        devices = [
            DeviceReading(device=name, memory_used_mib=used, memory_total_mib=24_576.0, busy_pct=0.0)
            for name, used in self.used.items()
        ]
        processes = [ProcessReading(device=d, pid=p, memory_used_mib=m) for d, p, m in self.processes]
        return Snapshot(time_ns=0, devices=tuple(devices), processes=tuple(processes), failures=self.failures)

    def close(self) -> None:
        self.closed += 1


class Looks:
    def __init__(self, ours: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        self.driver = Driver()
        self.now = 100.0
        self.watch = DeviceWatch(CARDS, lambda pid: pid in ours, lambda: self.driver, every_s=5.0)

    def look(self) -> list[Foreign | DeviceGone]:
        self.now += 5.0
        return self.watch.look(self.now)


def test_memory_of_a_process_outside_is_told_though_the_device_is_idle() -> None:
    """C22: 10,240 MiB held at 0% busy are not free; once the process ends, they are."""
    looks = Looks(ours={11})
    assert looks.look() == []
    looks.driver.used["GPU-0"] = 10_640.0
    looks.driver.processes = [("GPU-0", 4711, 10_240.0), ("GPU-1", 11, 300.0)]
    assert looks.look() == [Foreign(device=0, memory_bytes=10_240 * MIB, pids=(4711,))]
    assert looks.look() == [], "told once"
    looks.driver.used["GPU-0"], looks.driver.processes = 400.0, []
    assert looks.look() == [Foreign(device=0, memory_bytes=0, pids=())]


def test_memory_that_no_listed_process_holds_is_somebodys() -> None:
    looks = Looks()
    looks.driver.used["GPU-1"] = 9_000.0
    assert looks.look() == [Foreign(device=1, memory_bytes=9_000 * MIB, pids=())]
    looks = Looks()
    looks.driver.used["GPU-1"] = 900.0
    assert looks.look() == [], "what a driver takes for itself"
    looks = Looks(ours={5})
    looks.driver.used["GPU-1"], looks.driver.processes = 9_000.0, [("GPU-1", 5, None)]
    assert looks.look() == [], "a process of ours whose figure is missing may hold it"


def test_readings_that_cannot_be_are_counted_and_nothing_follows_from_them() -> None:
    """C24, on a device of 24,564 MiB."""
    looks = Looks()
    told = []
    for used in (10_100.0, 17_592_186_040_000.0, 10_110.0, -3.0, 10_120.0):
        looks.driver.used["GPU-0"] = used
        told += looks.look()
    assert told == [Foreign(device=0, memory_bytes=10_100 * MIB, pids=())]
    assert looks.watch.rejected == {0: 2} and not looks.watch.suspect(0)
    looks.driver.processes = [("GPU-0", 4711, 17_592_186_040_000.0)]
    assert looks.look() == []
    assert looks.watch.rejected == {0: 3} and looks.watch.suspect(0) and not looks.watch.suspect(1)
    looks.driver.used["GPU-0"] = None
    assert looks.look() == [] and looks.watch.rejected == {0: 3}, "missing is not impossible"


def test_a_device_that_is_lost_is_told_with_its_cause_and_comes_back() -> None:
    looks = Looks()
    looks.look()
    del looks.driver.used["GPU-1"]
    looks.driver.failures = (Failure(device="GPU-1", reason="GPU is lost"),)
    assert looks.look() == [DeviceGone(device=1, up=False, cause="GPU is lost")]
    assert looks.look() == []
    looks.driver.used["GPU-1"], looks.driver.failures = 400.0, ()
    assert looks.look() == [DeviceGone(device=1, up=True)]
    looks.driver.broken = "NVML cannot be used: driver/library version mismatch"
    assert looks.look() == [DeviceGone(device=n, up=False, cause=looks.driver.broken) for n in (0, 1)]
    looks.driver.broken = ""
    assert looks.look() == [DeviceGone(device=n, up=True) for n in (0, 1)]


def test_a_look_comes_when_it_is_time_and_not_before() -> None:
    looks = Looks()
    looks.look()
    looks.driver.used["GPU-0"] = 9_000.0
    assert looks.watch.look(looks.now + 4.9) == [] and looks.watch.wait_s(looks.now + 2.0) == 3.0
    assert len(looks.watch.look(looks.now + 5.0)) == 1


def test_a_busy_process_outside_is_told_of_its_core_and_ours_is_not(lab: Lab) -> None:
    host = lab.host(watch_s=0.5)
    host.launch(job("while True: pass", devices=(0,)))
    lab.started(host)
    ours = host.running()[0].pid
    last = len(core_devices()) - 1
    core = cores()[last]
    code = f"import os\nos.sched_setaffinity(0, [{core}])\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-S", "-c", code]) as busy:
        # So that it gets its half of a core whatever else runs here.
        if os.getuid() == 0:
            os.setpriority(os.PRIO_PROCESS, busy.pid, -19)
        told = lab.until(host, lambda r: isinstance(r, Foreign) and busy.pid in r.pids)
        assert isinstance(told, Foreign) and told.device == last and told.memory_bytes == 0
        assert ours not in told.pids
        busy.kill()
    lab.until(host, lambda r: isinstance(r, Foreign) and r.device == last and busy.pid not in r.pids)


def test_a_client_of_a_shared_server_leaves_in_order(lab: Lab) -> None:
    """C60: no new work, the step ends, the server is told, and only then the process is signalled."""
    code = """
import mmap, os, signal, struct, sys, time
page = mmap.mmap(os.open(os.environ["COTENANT_STATUS"], os.O_RDWR), 4096)
struct.pack_into("<Q", page, 40, 3)
def term(*_):
    print("term", flush=True); sys.exit(1)
signal.signal(15, term)
step = 0
while True:
    time.sleep(0.05)
    step += 1
    struct.pack_into("<Q", page, 8, step)
    if struct.unpack_from("<Q", page, 64)[0]:
        print("no new work", flush=True)
        while True: time.sleep(1)
"""
    said = lab.folder.parent / "said"
    server = f"import sys; open({str(said)!r}, 'a').write(sys.stdin.read() + open({{log!r}}).read())"

    class Server(DutyCycleBackend):
        name = "server"

        def apply(self, want: Want) -> Applied:
            log = str(lab.path(int(want.key.partition(".")[0]), "serial-0", "stdout.log"))
            command = {
                "argv": [sys.executable, "-c", server.format(log=log)],
                "input": "terminate_client 1 {pid}\n",
            }
            return Applied(stop_commands=(command,))

    host = lab.host(cores=[Server()])
    host.launch(job(code, 0))
    host.launch(job("import time; time.sleep(1.5)", 1))
    lab.started(host)
    wait_for(
        lambda: host.poll(0.05) is not None and (a := host._attempts[0, 0].reading()) and a.steps > 2, "steps"
    )
    pid = host._attempts[0, 0].pid
    host.stop(0, 1, 0, "terminate")
    assert lab.ended(host).outcome == "killed"
    assert said.read_text() == f"terminate_client 1 {pid}\nno new work\n"
    assert lab.output() == "no new work\nterm\n"
    assert lab.ended(host, 1).outcome == "done", "its neighbour goes on"


def test_waking_ends_a_wait(lab: Lab) -> None:
    import threading

    host = lab.host()
    began = time.monotonic()
    threading.Timer(0.1, host.wake).start()
    assert host.poll(20.0) == []
    assert time.monotonic() - began < 10.0


def test_an_unknown_attempt_is_answered(lab: Lab) -> None:
    host = lab.host()
    host.stop(5, 1, 0, "kill")
    assert lab.ended(host, 5).outcome == "lost"
    host.pause(5, 1, 0, True)
    host.forget(5)
    assert host.poll(0.0) == []


@pytest.mark.parametrize("order", ["pause", "reshare"])
def test_orders_for_an_attempt_that_has_ended_change_nothing(lab: Lab, order: str) -> None:
    from cotenant.model.placement import WHOLE

    host = lab.host()
    host.launch(job("pass"))
    lab.ended(host)
    if order == "pause":
        host.pause(0, 1, 0, True)
    else:
        host.reshare(0, 1, 0, WHOLE)
    assert host.poll(0.0) == [] and not lab.path(0, "serial-0", "control.json").exists()
    host.stop(0, 1, 0, "kill")
    assert lab.ended(host).outcome == "done", "an end is told as it was"
