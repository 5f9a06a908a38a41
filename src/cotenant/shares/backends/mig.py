"""Multi-Instance GPU: a device cut into instances with memory, cache and multiprocessors of their own.

The only way that isolates faults on an NVIDIA device, and a coarse one: a share is rounded up to a profile, and
stays what it is until the job ends. Instances are made when a job comes and destroyed when it has ended; MIG mode
itself is the administrator's to switch. docs.nvidia.com/datacenter/tesla/mig-user-guide: "Creating GPU instances",
"Device enumeration".
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from cotenant.model.placement import DEVICE_MILLI
from cotenant.model.quantities import GIB
from cotenant.shares.backends.base import Applied, Enforcement, Want

__all__ = ["Mig", "Profile", "plan_profile", "read_created", "read_instances", "read_profiles"]

_TIMEOUT_S = 30.0
_PROFILE = re.compile(
    r"^\|\s+(\d+)\s+MIG\s+(\S+)\s+(\d+)\s+(\d+)/(\d+)\s+(\d+(?:\.\d+)?)\s+\S+\s+(\d+)\s", re.MULTILINE
)
_CREATED = re.compile(r"created GPU instance ID\s+(\d+) on GPU\s+(\d+)")
_GPU = re.compile(r"^GPU (\d+): .*\(UUID: (GPU-[^)]+)\)")
_INSTANCE = re.compile(r"^\s+MIG \S+\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)")


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of instance that a device offers.

    Parameters
    ----------
    gpu : int
    name : str
        Such as ``3g.20gb``.
    id : int
    free, total : int
        How many can still be made, and could on an empty device.
    memory_bytes, sms : int
    """

    gpu: int
    name: str
    id: int
    free: int
    total: int
    memory_bytes: int
    sms: int


def read_profiles(text: str) -> list[Profile]:
    """What ``nvidia-smi mig -lgip`` prints; a row that is none is passed over."""
    return [
        Profile(
            gpu=int(gpu),
            name=name,
            id=int(number),
            free=int(free),
            total=int(total),
            memory_bytes=int(float(memory) * GIB),
            sms=int(sms),
        )
        for gpu, name, number, free, total, memory, sms in _PROFILE.findall(text)
    ]


def read_created(text: str) -> tuple[int, int] | None:
    """GPU and number of the instance that ``nvidia-smi mig -cgi`` says it made; None if it made none."""
    found = _CREATED.search(text)
    return None if found is None else (int(found.group(2)), int(found.group(1)))


def read_instances(text: str) -> dict[str, tuple[int, tuple[str, ...]]]:
    """What ``nvidia-smi -L`` lists: for each GPU's UUID its index and the UUIDs of its instances."""
    found: dict[str, tuple[int, tuple[str, ...]]] = {}
    current = ""
    for line in text.splitlines():
        if gpu := _GPU.match(line):
            current = gpu.group(2)
            found[current] = (int(gpu.group(1)), ())
        elif current and (instance := _INSTANCE.match(line)):
            index, known = found[current]
            found[current] = (index, (*known, instance.group(1)))
    return found


def plan_profile(profiles: Sequence[Profile], want: Want) -> Profile | None:
    """The smallest profile that holds the share and of which one can still be made; None if there is none.

    Compute counts as the profile's multiprocessors over those of the largest profile, a little less than the
    whole device has: MIG leaves some out.
    """
    most = max((profile.sms for profile in profiles), default=0)
    fitting = [
        profile
        for profile in profiles
        if profile.free > 0
        and profile.memory_bytes >= want.share.memory_bytes
        and profile.sms * DEVICE_MILLI >= want.share.compute_milli * most
        # Media engines are another's to need.
        and not profile.name.endswith(("+me", "+me.all", "+gfx"))
    ]
    return min(fitting, key=lambda p: (p.sms, p.memory_bytes, p.id), default=None)


def _run(words: Sequence[str]) -> str:
    """Run ``nvidia-smi``; raises ``OSError`` with its words where it fails."""
    try:
        done = subprocess.run(  # noqa: S603
            ["nvidia-smi", *words],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.SubprocessError as error:
        raise OSError(5, f"nvidia-smi does not answer: {error}") from None
    if done.returncode:
        raise OSError(5, f"nvidia-smi {' '.join(words)}: {(done.stdout + done.stderr).strip()}")
    return done.stdout


class Mig:
    """Makes an instance for each job.

    Parameters
    ----------
    kept : Path
        Where it is noted which job has which instance, so that a later scheduler can destroy it.
    run : callable
        Takes the words after ``nvidia-smi``, returns what it prints; raises ``OSError``.
    uuids : frozenset of str, optional
        Devices in MIG mode; all by default.
    """

    name = "MIG"
    enforcement = Enforcement(
        memory="hard",
        compute="hard",
        fault_isolation=True,
        adjustable=False,
        note="shares are rounded up to a profile; one device for each job",
    )

    def __init__(
        self, kept: Path, run: Callable[[Sequence[str]], str] = _run, *, uuids: frozenset[str] | None = None
    ) -> None:
        self._kept, self._run, self._uuids = kept, run, uuids

    @classmethod
    def detect(cls, kept: Path, run: Callable[[Sequence[str]], str] = _run) -> Mig | None:
        """MIG, if some device here is in that mode; on the others it does nothing."""
        try:
            text = run(["--query-gpu=uuid,mig.mode.current", "--format=csv,noheader"])
        except OSError:
            return None
        cells = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
        cut = frozenset(row[0] for row in cells if len(row) == 2 and row[1] == "Enabled")
        return cls(kept, run, uuids=cut) if cut else None

    def apply(self, want: Want) -> Applied:
        """Make an instance on the job's device; the job sees nothing else."""
        if not want.uuids or (self._uuids is not None and self._uuids.isdisjoint(want.uuids)):
            return Applied()
        if len(want.uuids) > 1:
            raise OSError(22, "a device in MIG mode runs jobs of one device alone")
        before = read_instances(self._run(["-L"]))
        if want.uuids[0] not in before:
            raise OSError(19, f"nvidia-smi lists no {want.uuids[0]}")
        index, known = before[want.uuids[0]]
        offered = [p for p in read_profiles(self._run(["mig", "-i", str(index), "-lgip"])) if p.gpu == index]
        profile = plan_profile(offered, want)
        if profile is None:
            raise OSError(28, f"no MIG profile of GPU {index} that holds the share is free")
        answer = self._run(["mig", "-i", str(index), "-cgi", str(profile.id), "-C"])
        created = read_created(answer)
        if created is None:
            raise OSError(5, f"nvidia-smi made no instance: {answer.strip()}")
        self._note(want.key, list(created))
        after = read_instances(self._run(["-L"]))[want.uuids[0]][1]
        new = [uuid for uuid in after if uuid not in known]
        if len(new) != 1:
            self.remove(want.key)
            raise OSError(5, f"GPU {index} shows {len(new)} new instances where one was made")
        return Applied(env={"CUDA_VISIBLE_DEVICES": new[0]})

    def adjust(self, want: Want) -> None:
        """An instance stays as it is."""

    def remove(self, key: str) -> None:
        """Destroy the job's instance; what cannot be destroyed is tried again when it is asked again."""
        found = self._noted().get(key)
        if found is None:
            return
        gpu, instance = map(str, found)
        try:
            self._run(["mig", "-i", gpu, "-gi", instance, "-dci"])
            self._run(["mig", "-i", gpu, "-gi", instance, "-dgi"])
        except OSError:
            return
        self._note(key, None)

    def use_s(self, key: str) -> float | None:
        """Not counted here."""
        return None

    def memory_bytes(self, key: str) -> int | None:
        """Not counted here."""
        return None

    def _noted(self) -> dict[str, list[int]]:
        try:
            found = json.loads(self._kept.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _note(self, key: str, instance: list[int] | None) -> None:
        known = self._noted()
        if instance is None:
            known.pop(key, None)
        else:
            known[key] = instance
        beside = self._kept.with_suffix(".new")
        beside.write_text(json.dumps(known), encoding="utf-8")
        beside.replace(self._kept)
