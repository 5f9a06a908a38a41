"""The parts of a leading daemon, put together: host, executor, loop, read model, API."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cotenant.engine.loop import Loop
from cotenant.errors import StoreError
from cotenant.live import doctor
from cotenant.live.api import ApiSettings, Served, create_app, serve
from cotenant.live.clock import BootClock
from cotenant.live.executor import LiveExecutor
from cotenant.live.ground import Ground
from cotenant.live.keeping import SavedStates
from cotenant.live.keepinghost import KeepingHost
from cotenant.live.learning import LearningLoop
from cotenant.live.leftovers import Leftovers, Swept
from cotenant.live.logs import Teller
from cotenant.live.options import UpOptions, allowed_names
from cotenant.live.picture import Picture
from cotenant.live.service import LiveService
from cotenant.live.standing import Standing
from cotenant.live.storelog import PatientReads, StoreLog
from cotenant.live.tapped import TappedHost
from cotenant.live.tenancy import TenantWatch
from cotenant.live.tenants import Tenants
from cotenant.live.waking import Waker
from cotenant.live.wishes import Wishes
from cotenant.model.liveports import DeviceGone, Lease
from cotenant.model.quantities import format_bytes
from cotenant.model.settings import Settings

__all__ = ["Works"]

_log = logging.getLogger("cotenant.live")


class Works:
    """Everything that lives as long as the lease.

    Parameters
    ----------
    options : UpOptions
    ground : Ground
    state : Path
    store : SqlStore
    lease : Lease
    clock : BootClock
    tenants : Tenants
    settings : Settings
    policy : Policy

    Raises
    ------
    LogError
        If the log is of other devices, or cannot be folded.
    """

    def __init__(
        self,
        *,
        options: UpOptions,
        ground: Ground,
        state: Path,
        store: Any,
        lease: Lease,
        clock: BootClock,
        tenants: Tenants,
        settings: Settings,
        policy: Any,
    ) -> None:
        self._options, self._state, self._store, self._lease = options, state, store, lease
        self._clock, self._tenants = clock, tenants
        self._devices, self._missing = ground.devices, ground.missing
        self._cluster, self._forecast = ground.cluster, ground.forecast
        self.picture = Picture(
            clock,
            [d.name for d in self._devices],
            [d.device_type for d in self._devices],
            asked=self._asked,
        )
        if hasattr(policy, "resize_gain"):  # who takes devices from elastic jobs
            self.picture.quantum_s = float(policy.quantum_s)
        self._wishes = Wishes()
        self._host = TappedHost(self._made_host(ground), self.picture.report)
        self._host.first([DeviceGone(device=d.device, up=False, cause="not found") for d in self._missing])
        self._stop_asked = threading.Event()
        reads: Any = PatientReads(store, self._stop_asked)
        self._executor = LiveExecutor(
            reads, self._host, clock, lease, settings=settings, forecast=self._forecast
        )
        self._executor.intake.tenants = TenantWatch(tenants, self._cluster.tenants)
        self._learning = LearningLoop(
            state, self._cluster, self._forecast, self._host.wake, enabled=_learns(options)
        )
        self._loop = self._made_loop(settings, policy)
        self._leftovers = Leftovers(state, self.picture.has_ended)
        self._waker = Waker(self._host.wake)
        self._standing = self._made_standing()
        self.service = LiveService(
            store=store,
            picture=self.picture,
            clock=clock,
            tenants=tenants,
            cluster=self._cluster,
            state=state,
            standing=self._standing,
            wishes=self._wishes,
        )
        self._served: Served | None = None

    def _made_host(self, ground: Ground) -> KeepingHost:
        options, state, epoch = self._options, self._state, self._lease.epoch

        def states(wake: Callable[[], None]) -> SavedStates:
            return SavedStates(
                state,
                epoch,
                memory_bytes=options.state_memory_bytes,
                disk_bytes=options.state_disk_bytes,
                wake=wake,
            )

        # Who keeps none any more still has to bring back what was kept before.
        kept = states if options.state_disk_bytes != 0 or (state / "saved").is_dir() else None
        host = KeepingHost(state, ground.present, epoch=epoch, states=kept)
        host.warm()
        return host

    def _made_loop(self, settings: Settings, policy: Any) -> Loop:
        from cotenant.predictors.forecast import build_runtime
        from cotenant.runs.spec import params_of

        self._executor.looks.append(self._learning.look)
        return Loop(
            cluster=self._cluster,
            policy=policy,
            executor=self._executor,
            forecast=self._forecast,
            runtime=build_runtime(self._options.runtime, _no_workload(), self._options.seed),
            settings=settings,
            seed=self._options.seed,
            log=StoreLog(self._store, self._lease, self._executor, self._stop_asked),
            observers=(self.picture, self._wishes, Teller(self.picture.name_of), self._learning),
            header={
                "policy": self._options.policy,
                "params": params_of(policy),
                "workload": {"name": "live"},
                "truth": {"kind": "real"},
            },
            history=(event for _, event in self._store.read()),
            durable=True,
        )

    def _made_standing(self) -> Standing:
        return Standing(
            picture=self.picture,
            clock=self._clock,
            devices=self._devices,
            policy=self._options.policy,
            forecast=lambda: str(self._forecast.describe().get("kind", "none")),
            epoch=self._lease.epoch,
            enforcement=self._enforcement(),
            warnings=self._warnings,
            examine=self._examine,
            wake=self._waker.wake,
            saved=self._saved,
        )

    def _saved(self) -> dict[str, int]:
        states = self._host.inner.states
        return {} if states is None else {tier.name: tier.held_bytes for tier in states.stats.tiers}

    # -- running -------------------------------------------------------------------------

    def serve(self, told: Callable[[str], None]) -> None:
        """Answer from now on; ``told`` gets the URL."""
        options = self._options
        hosts, origins = allowed_names(options.allow_hosts)
        settings = ApiSettings(hosts=hosts, origins=origins, metrics_open=options.open_metrics)
        self._served = serve(
            create_app(self.service, self._tenants, settings),
            options.bind,
            options.port,
            certificate=options.certificate,
            key=options.key,
            allow_plain=options.allow_plain,
        )
        told(self._served.url)

    def run(self) -> None:
        """Decide and act until ``stop``."""
        threading.Thread(target=self._look_up, name="cotenant-commands", daemon=True).start()
        self._leftovers.sweep_aside(_tell_swept)
        if not self._stop_asked.is_set():
            self._loop.run()

    def stop(self) -> None:
        """End after the present instant; in any thread, and in signal handlers."""
        self._stop_asked.set()
        self._loop.stop()
        self._host.wake()

    def close(self) -> None:
        """Stop answering, let go of the processes."""
        if self._served is not None:
            self._served.stop()
        self._waker.close()
        self._learning.close()
        self._host.close()

    # -- parts ---------------------------------------------------------------------------

    def _asked(self, job_id: int) -> tuple[str, ...]:
        """From what the executor remembers; else from the request."""
        return self._executor.asked(job_id).command

    def _look_up(self) -> None:
        """In a thread of its own: what the jobs of before run, for who looks at them."""
        after = 0
        try:
            while page := self._store.waiting(after):
                for accepted in page:
                    command = accepted.request.body.get("command")
                    if accepted.job_id >= 0 and isinstance(command, list):
                        self.picture.know(accepted.job_id, tuple(map(str, command)))
                after = page[-1].seq
        except StoreError as error:
            _log.warning("commands of earlier jobs cannot be shown: %s", error)

    def _enforcement(self) -> dict[int, dict[str, str]]:
        holding = self._host.inner.holding
        found = {}
        for device in self._devices:
            backends = holding._cores if device.kind == "cpu" else holding._gpus
            found[device.device] = _table(backends)
        return found

    def _warnings(self) -> tuple[str, ...]:
        told = [f"{d.name} was here before, and is not found now" for d in self._missing]
        if self._options.allow_plain and self._options.certificate is None:
            told.append("served without TLS where other machines can reach it")
        if self._tenants.broken:
            told.append("tenants.toml cannot be used as it is; what was read before holds (cotenant doctor)")
        if abs(self._clock.jumped_s()) > 60.0:
            told.append("the machine's wall clock was set; times shown are those of before")
        return tuple(told)

    def _examine(self) -> dict[str, Any]:
        def findings() -> Iterator[doctor.Finding]:
            from cotenant.live.store import check

            yield from doctor.looked_at_again(self.picture, lambda: doctor.really_running(self._state))
            problems = check(self._store)
            yield from doctor.log_problems(problems)
            if not problems:
                yield doctor.Finding(level="ok", about="log", text=f"{self._store.count():,} events, whole")
            yield from doctor.unsafe(self._options, self._state)
            yield from doctor.tenancy(self._tenants, self._loop.state.cluster)
            yield from doctor.machine(self._state, self._clock, self._lease.epoch, self._missing)
            yield from doctor.left_behind(self._leftovers)
            readings = self._standing.readings
            if (states := self._host.inner.states) is not None:
                yield from doctor.saved_states(states.stats)
            yield from doctor.telemetry(readings.read(), self._devices, readings.failed)

        tables = self._enforcement()
        return doctor.examine(findings(), {d.name: tables[d.device] for d in self._devices})


def _table(backends: Sequence[Any]) -> dict[str, str]:
    """What back ends of a device enforce, each in one line."""
    found: dict[str, str] = {}
    for backend in backends:
        told = msgspec.to_builtins(backend.enforcement)
        words = f"memory {told['memory']}, compute {told['compute']}"
        if not told["fault_isolation"]:
            words += ", a fault of one job can end its neighbours"
        if told.get("note"):
            words += f"; {told['note']}"
        found[backend.name] = words
    return found


def _tell_swept(swept: Swept) -> None:
    if swept.count:
        _log.info(
            "swept %d files of schedulers that were killed, %s", swept.count, format_bytes(swept.size_bytes)
        )


def _learns(options: UpOptions) -> bool:
    """A forecast that was named with a file, or that is another kind, stays what it is."""
    return options.forecast in ("auto", "adaptive")


def _no_workload() -> Any:
    import polars as pl

    from cotenant.model.workload import Workload

    empty = pl.DataFrame(
        {"name": [], "submit_s": [], "duration_s": []},
        schema={"name": pl.String, "submit_s": pl.Float64, "duration_s": pl.Float64},
    )
    return Workload(empty, name="live")
