"""Every rule of the game on which published simulators silently differ, by name.

``docs/settings.md`` shows what each does to one and the same trace.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from cotenant.errors import ConfigError
from cotenant.model.jobs import Job

__all__ = ["Settings"]


class Settings(msgspec.Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """How the simulated (or live) cluster behaves.

    Parameters
    ----------
    gang_span : {"never", "larger-than-node", "any"}
        Whether a gang may lie on several nodes: never; only if it is larger than any node;
        whenever one node does not have the room.
    span_speed : float
        Speed factor of a gang spread over more nodes than it needs (1.0: no penalty).
    mixed_types : bool
        Whether one gang may use devices of several types (it runs at the slowest).
    elastic_speed : {"linear", "workers"}
        Speed of elastic jobs by size: proportional to the number of devices (at the slowest type's pace), or
        by logical workers in turn (``model.workers``), which may also use a mix of types.
    elastic_shares : float
        What a job with a declared fraction gains from compute beyond it: its speed is 1 plus this many
        times the excess, relative to its fraction. 0: nothing; 1: it speeds up in proportion. Compute
        that nobody is guaranteed is divided by guarantees, up to each share's ceiling.
    type_order : {"fastest", "slowest", "largest-memory", "declared"}
        Which device type is tried first.
    max_sharers : int
        Most jobs on one device.
    starts_per_event : int
        Most jobs started at one instant; 0 is no bound.
    decision_latency_s : float
        From decision to effect; devices are held meanwhile.
    round_s : float
        0: decide at every event. Otherwise decide only at multiples of this many seconds.
    start_s : float
        Cold start of an attempt, in seconds, devices held.
    restore_s : float
        Fixed part of resuming or migrating, in seconds (process start, warm-up).
    state_bytes_per_s : float
        Bandwidth at which state is saved and loaded, for each device.
    state_fraction : float
        State size as a fraction of the job's memory, where the job declares none.
    min_quantum_s : float
        No stop, move or shrink before an attempt has run this long.
    slice_s, slice_switch_s : float
        Quantum of time-sliced sharing, and the cost of one switch.
    checkpoint_s : float
        Interval of periodic checkpoints: what a lost device costs. 0: each attempt restarts
        from its beginning.
    retry_lost : int
        How often a job that lost its device is tried again.
    rate_events : bool
        Whether every change of speed is logged. If not, logs are shorter, metrics that need
        speeds are n/a, and policies take every job to run at speed 1.0 once it has started up
        or loaded its state.
    sample_s : float
        A run is sampled this long after it really works, and again this long after its company
        changed; the sample tells what work the job declared (``Sampled``). 0: never.
    sample_noise : float
        Spread of the logarithm of what a sample measures: an assumption.
    sample_learns : bool
        Whether forecasts of speeds that can learn do so from samples of jobs beside others.
    undo_after_s : float
        A set whose measured speeds lie outside of what is predicted, so that it does not pay, is parted after so
        long, by policies that know how. 0: never.
    """

    gang_span: Literal["never", "larger-than-node", "any"] = "larger-than-node"
    span_speed: float = 0.8
    mixed_types: bool = False
    elastic_speed: Literal["linear", "workers"] = "linear"
    elastic_shares: float = 0.0
    type_order: Literal["fastest", "slowest", "largest-memory", "declared"] = "fastest"
    max_sharers: int = 4
    starts_per_event: int = 0
    decision_latency_s: float = 0.0
    round_s: float = 0.0
    start_s: float = 0.0
    restore_s: float = 10.0
    state_bytes_per_s: float = 1.0e9
    state_fraction: float = 1.0
    min_quantum_s: float = 0.0
    slice_s: float = 60.0
    slice_switch_s: float = 0.6
    checkpoint_s: float = 0.0
    retry_lost: int = 1000
    rate_events: bool = True
    sample_s: float = 0.0
    sample_noise: float = 0.05
    sample_learns: bool = True
    undo_after_s: float = 0.0

    def transfer_s(self, job: Job) -> float:
        """Seconds to save a job's state, or to load it: the price the world charges and policies reckon with."""
        size = job.state_bytes or job.memory_bytes * self.state_fraction
        return size / self.state_bytes_per_s

    def reload_s(self, job: Job) -> float:
        """Seconds to save a job's state, load it again and warm up: what a suspension or a move costs."""
        return self.restore_s + 2.0 * self.transfer_s(job)

    def startup_s(self, job: Job, resumed: bool) -> float:
        """Seconds between start and first useful work: a cold start, or loading saved state."""
        if resumed:
            return self.decision_latency_s + self.restore_s + self.transfer_s(job)
        return self.decision_latency_s + self.start_s

    def check(self) -> Settings:
        """Return self if every value is in range.

        Raises
        ------
        ConfigError
            Naming the setting, what was found and the range.
        """
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, (int, float)) and not (0 <= value < float("inf")):
                raise ConfigError(f"setting {name} must be zero or more and finite, found {value}")
        for name, low, high in (("span_speed", 0, 1), ("state_fraction", 0, 100)):
            value = getattr(self, name)
            if not low < value <= high:
                raise ConfigError(f"setting {name} must lie in ({low}, {high}], found {value}")
        for name in ("sample_noise", "elastic_shares"):
            if getattr(self, name) > 1:
                raise ConfigError(f"setting {name} must lie in [0, 1], found {getattr(self, name)}")
        for name in ("state_bytes_per_s", "slice_s", "max_sharers"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"setting {name} must be positive, found {getattr(self, name)}")
        return self
