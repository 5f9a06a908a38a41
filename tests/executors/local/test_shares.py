"""Shares on real processes: CPU time counted by the kernel, compared with what was promised.

Bounds are wide enough for a machine on which others work: what is compared is a job with its own limit, or jobs
that share one core with each other. What others do for a while may still push a figure out of them, so each is looked
at again and again until it holds; a limit that is not kept never does.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import pytest
from hostlab import Lab, job, wait_for

from cotenant.executors.local import layout
from cotenant.executors.local.attempts import Reading
from cotenant.executors.local.devices import DeviceInfo
from cotenant.executors.local.duty import DutyCycle
from cotenant.executors.local.gatemeter import GateMeter
from cotenant.executors.local.host import LocalHost
from cotenant.executors.local.trees import TreeClock
from cotenant.model.liveports import Launch
from cotenant.model.placement import Share
from cotenant.shares.backends.base import Applied, Backend, Want
from cotenant.shares.backends.cgroup1 import CgroupV1
from cotenant.shares.backends.plain import DutyCycleBackend, StepGate

BUSY = "while True: pass"


def duty() -> Backend:
    return DutyCycleBackend()


def cgroup() -> Backend:
    found = CgroupV1.detect(f"cotenant-test-{os.getpid()}")
    if found is None:
        pytest.skip("cgroups of version 1 are not ours to write")
    return found


def clock_of(host: LocalHost, number: int) -> TreeClock:
    clock = TreeClock(next(a for a in host._attempts.values() if a.id == number).shepherd)
    clock.read()
    return clock


def used(host: LocalHost, clocks: dict[int, TreeClock], seconds: float) -> dict[int, float]:
    """Share of the time that each had, in percent."""
    before = {n: clock.read() for n, clock in clocks.items()}
    began = time.monotonic()
    while (left := began + seconds - time.monotonic()) > 0:
        host.poll(min(left, 0.1))
    passed = time.monotonic() - began
    return {n: 100.0 * (clock.read() - before[n]) / passed for n, clock in clocks.items()}


def comes_to(look: Callable[[], float], low: float, high: float, why: str) -> None:
    """Look until a figure lies between the two."""
    seen: list[float] = []

    def there() -> bool:
        seen.append(look())
        return low < seen[-1] < high

    wait_for(there, f"{why}: not between {low} and {high}: {seen}")


@pytest.mark.parametrize("make", [duty, cgroup])
def test_a_limit_is_kept_and_a_new_one_holds_at_once(lab: Lab, make: Callable[[], Backend]) -> None:
    host = lab.host(cores=[make()])
    host.launch(job(BUSY, share=Share("spatial", 0, 400, 400)))
    lab.started(host)
    clocks = {0: clock_of(host, 0)}
    why = "at most its 40 points; less where others have the core"
    comes_to(lambda: used(host, clocks, 1.5)[0], 15.0, 45.0, why)
    host.reshare(0, 1, 0, Share("spatial", 0, 100, 100))
    used(host, clocks, 0.3)
    comes_to(lambda: used(host, clocks, 1.5)[0], 0.0, 15.0, "at most its 10 points")


def test_stopping_and_going_on_counts_descendants_in_other_sessions(lab: Lab) -> None:
    host = lab.host()
    host.launch(
        job(
            "import os\nif os.fork() == 0: os.setsid()\nwhile True: pass", share=Share("spatial", 0, 300, 300)
        )
    )
    lab.started(host)
    clocks = {0: clock_of(host, 0)}
    used(host, clocks, 0.3)
    comes_to(lambda: used(host, clocks, 1.5)[0], 0.0, 36.0, "two busy processes together")


@pytest.mark.parametrize("make", [duty, cgroup])
def test_what_was_lent_comes_back_when_a_neighbour_comes(lab: Lab, make: Callable[[], Backend]) -> None:
    host = lab.host(cores=[make()])
    host.launch(job(BUSY, 0, share=Share("spatial", 0, 300, 1000)))
    lab.started(host, 0)
    host.launch(job(BUSY, 1, share=Share("spatial", 0, 500, 500)))
    lab.started(host, 1)
    clocks = {n: clock_of(host, n) for n in (0, 1)}

    def part() -> float:
        found = used(host, clocks, 2.0)
        return found[0] / (found[0] + found[1])

    comes_to(part, 0.35, 0.65, "half and half: 30 guaranteed and 20 lent, against 50")


def test_a_lenders_guarantee_is_always_allowed(lab: Lab) -> None:
    host = lab.host()
    host.launch(job(BUSY, 0, share=Share("spatial", 0, 200, 1000)))
    idle = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\nwhile True: pass"
    host.launch(job(idle, 1, share=Share("spatial", 0, 600, 600)))
    lab.started(host, 0)
    lab.started(host, 1)
    attempts = {a.id: a for a in host._attempts.values()}
    assert wait_for(lambda: host.poll(0.1) is not None and attempts[0].allowed > 850, "idle time is lent")
    assert attempts[1].allowed >= 600
    lab.path(1, "work", "go").touch()
    wait_for(lambda: host.poll(0.1) is not None and attempts[0].allowed < 560, "and taken back")


def test_the_enforcement_goes_on_without_a_daemon(lab: Lab) -> None:
    host = lab.host()
    host.launch(job(BUSY, share=Share("spatial", 0, 200, 200)))
    lab.started(host)
    clock = clock_of(host, 0)
    host.close()
    lab.hosts.clear()

    def part() -> float:
        before, began = clock.read(), time.monotonic()
        time.sleep(1.5)
        return (clock.read() - before) / (time.monotonic() - began)

    comes_to(part, 0.0, 0.25, "a fifth")


def test_a_whole_device_costs_its_shepherd_nothing(lab: Lab) -> None:
    host = lab.host()
    host.launch(job("import time; time.sleep(300)", share=Share("spatial", 0, 1000, 1000)))
    lab.started(host)
    shepherd = next(iter(host._attempts.values())).shepherd

    def spent() -> float:
        before = time.clock_gettime((~shepherd << 3) | 2)
        time.sleep(1.0)
        return time.clock_gettime((~shepherd << 3) | 2) - before

    comes_to(spent, -1.0, 0.002, "processor seconds, once it has started the job")


def test_memory_beyond_a_hard_limit_ends_the_job_as_out_of_memory(lab: Lab) -> None:
    backend = cgroup()
    if backend.enforcement.memory != "hard":
        pytest.skip("memory cgroups are not ours to write")
    host = lab.host(cores=[backend])
    code = "hold = []\nwhile True: hold.append(bytearray(8 << 20))"
    host.launch(job(code, 0, share=Share("spatial", 100 << 20, 500, 500)))
    host.launch(
        job(
            "import time; hold = bytearray(60 << 20); time.sleep(1); print('fine')",
            1,
            share=Share("spatial", 100 << 20, 500, 500),
        )
    )
    ended = lab.ended(host, 0)
    assert (ended.outcome, ended.signal) == ("out-of-memory", 9) and "limit" in ended.detail
    assert lab.ended(host, 1).outcome == "done" and lab.output(1) == "fine\n", "its neighbour noticed nothing"


def test_memory_beyond_an_advisory_limit_is_refused_and_told(lab: Lab) -> None:
    host = lab.host()
    code = "hold = []\nwhile True: hold.append(bytearray(64 << 20))"
    host.launch(job(code, share=Share("spatial", 200 << 20, 500, 500)))
    ended = lab.ended(host)
    assert (ended.outcome, ended.code) == ("out-of-memory", 1) and "MemoryError" in ended.detail


def test_groups_are_gone_after_the_job_and_after_a_job_that_nobody_saw_end(lab: Lab) -> None:
    backend = cgroup()
    assert isinstance(backend, CgroupV1)
    host = lab.host(cores=[backend])
    code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)"
    host.launch(job(code, share=Share("spatial", 0, 500, 500)))
    lab.started(host)
    folders = list(backend._folders("0.0").values())
    assert all(path.is_dir() for path in folders)
    host.close()
    lab.hosts.clear()
    lab.path(0, "work", "go").touch()
    wait_for(lambda: not any(path.exists() for path in folders), "the shepherd removes them itself")
    backend.tidy()


GATED = """
import itertools, time
from cotenant import runtime
run = runtime.attach(total_steps=10**9)
for _ in run.steps(itertools.repeat(0)):
    end = time.perf_counter() + {step}
    while time.perf_counter() < end: pass
"""


@pytest.mark.parametrize("step", [0.2])
def test_jobs_with_a_gate_in_them_share_a_device_that_nothing_else_holds(lab: Lab, step: float) -> None:
    card = DeviceInfo(device=0, name="gpu0", uuid="GPU-aaaa", kind="nvidia", memory_bytes=24 << 30)
    host = lab.host(devices=[card], gpus=[StepGate()])
    words = (sys.executable, "-c", GATED.format(step=step))
    for number, share in enumerate([Share("spatial", 0, 300, 1000), Share("spatial", 0, 500, 500)]):
        host.launch(Launch(id=number, attempt=1, serial=0, epoch=1, devices=(0,), share=share, command=words))
    attempts = {a.id: a for a in host._attempts.values()}
    wait_for(
        lambda: (
            host.poll(0.05) is not None and all((r := a.reading()) and r.steps > 5 for a in attempts.values())
        ),
        "steps",
    )
    wait_for(
        lambda: host.poll(0.05) is not None and attempts[0].allowed == attempts[1].allowed == 500,
        "the shares",
    )

    def busy() -> dict[int, float]:
        first = {n: (time.monotonic(), a.reading()) for n, a in attempts.items()}
        end = time.monotonic() + 3.0
        while time.monotonic() < end:
            host.poll(0.1)
        found = {}
        for number, (at, before) in first.items():
            after = attempts[number].reading()
            assert before is not None and after is not None
            found[number] = (after.busy_ns - before.busy_ns) / 1e9 / (time.monotonic() - at)
        return found

    why = "half the device each; a step of 0.2 s more or less"
    wait_for(lambda: all(0.3 < part < 0.62 for part in busy().values()), why)


def test_what_a_gated_job_used_is_known_over_several_steps() -> None:
    meter = GateMeter()
    told = []
    for look in range(40):
        now = look * 0.25
        steps = int(now / 1.2)
        # Steps of 0.6 s, each followed by 0.6 s of sleep.
        reading = Reading(steps, 0, 0, 0.6, 3, 0, int(steps * 0.6e9), int(steps * 0.6e9))
        told.append(meter.read(now, reading))
    assert told[0] is None and all(t is not None and 400 <= t <= 600 for t in told[-8:])
    assert meter.held(9.75) and not meter.held(30.0)


class FakeClock:
    """A job that uses what a core gives it whenever it runs."""

    def __init__(self) -> None:
        self.used_s = 0.0

    def read(self, *, refresh: bool = True) -> float:
        del refresh
        return self.used_s


@pytest.mark.parametrize("milli", [50, 300, 900])
def test_the_duty_cycles_mean_is_exact_on_a_clock_of_our_own(milli: int) -> None:
    clock = FakeClock()
    running = [True]
    cycle = DutyCycle(
        clock, 1, lambda: running.__setitem__(0, False), lambda: running.__setitem__(0, True), 0.0
    )  # type: ignore[arg-type]
    now = 0.0
    while now < 60.0:
        wait_s = cycle.step(now, milli)
        assert wait_s is not None and wait_s > 0.0
        # The shepherd wakes a little late each time.
        wait_s += 0.002
        clock.used_s += wait_s if running[0] else 0.0
        now += wait_s
    assert clock.used_s / now == pytest.approx(milli / 1000.0, abs=0.01)
    assert cycle.step(now, 1000) is None and running[0]


def test_what_a_job_used_while_nothing_was_limited_is_no_debt() -> None:
    clock = FakeClock()
    stops: list[int] = []
    cycle = DutyCycle(clock, 1, lambda: stops.append(1), lambda: None, 0.0)  # type: ignore[arg-type]
    assert cycle.step(1.0, 1000) is None
    clock.used_s = 50.0
    first = cycle.step(60.0, 300)
    assert first is not None and first < 0.05 and len(stops) == 1, (
        "it begins with an empty bucket, not with 32 s of debt"
    )
    cycle.step(60.0 + first, 300)
    assert cycle.running


def test_a_share_that_a_back_end_refuses_is_no_start(lab: Lab) -> None:
    class Refuses(DutyCycleBackend):
        def apply(self, want: object) -> object:  # type: ignore[override]
            raise OSError(28, "no room for another group")

    host = lab.host(cores=[Refuses()])
    host.launch(job("open('ran', 'w')"))
    ended = lab.ended(host)
    assert ended.outcome == "not-started" and "no room" in ended.detail
    assert not lab.path(0, "work", "ran").exists()
    assert layout.read_json(str(lab.path(0, "serial-0", "exit.json")))["outcome"] == "not-started"


class Weights(StepGate):
    """Notes the weight that each job has in the kernel."""

    def __init__(self) -> None:
        self.now: dict[str, int] = {}

    def apply(self, want: Want) -> Applied:
        self.adjust(want)
        return super().apply(want)

    def adjust(self, want: Want) -> None:
        self.now[want.key] = want.weight_milli

    def remove(self, key: str) -> None:
        self.now.pop(key, None)


def test_a_job_without_a_guarantee_has_the_weight_that_others_leave(lab: Lab) -> None:
    weights, sleeps = Weights(), "import time\ntime.sleep(1000)"
    host = lab.host(cores=[weights])
    host.launch(job(sleeps, 0, share=Share("spatial", 0, 0)))
    lab.started(host, 0)
    assert weights.now == {"0.0": 1000}, "alone it has the whole device"
    host.launch(job(sleeps, 1, share=Share("spatial", 0, 300)))
    lab.started(host, 1)
    assert weights.now == {"0.0": 700, "1.0": 300}
    host.launch(job(sleeps, 2, share=Share("spatial", 0, 0, 250)))
    lab.started(host, 2)
    assert weights.now == {"0.0": 350, "1.0": 300, "2.0": 250}
    host.reshare(1, 1, 0, Share("spatial", 0, 800))
    assert weights.now == {"0.0": 100, "1.0": 800, "2.0": 100}
    weights.now.clear()
    later = lab.host(cores=[weights], epoch=2)
    assert weights.now["0.0"] == 100, "who takes over knows the neighbours"
    later.stop(1, 1, 0, "kill")
    lab.ended(later, 1)
    assert (weights.now["0.0"], weights.now["2.0"]) == (500, 250)
    later.stop(2, 1, 0, "kill")
    lab.ended(later, 2)
    assert weights.now["0.0"] == 1000
