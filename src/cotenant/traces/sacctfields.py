"""Fields of Slurm's accounting: states, limits, trackable resources, memory, array ids.

As described in the manual pages of ``sacct`` and ``sbatch`` (slurm.schedmd.com).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from cotenant.errors import QuantityError
from cotenant.model.quantities import parse_bytes, parse_duration

__all__ = [
    "OUTCOMES",
    "WAITING",
    "Asked",
    "Limit",
    "array_tasks",
    "parse_limit",
    "parse_memory",
    "parse_state",
    "parse_tres",
]

OUTCOMES = {
    "COMPLETED": "done",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    "BOOT_FAIL": "failed",
    "DEADLINE": "failed",
    "FAILED": "failed",
    "LAUNCH_FAILED": "failed",
    "NODE_FAIL": "failed",
    "OUT_OF_MEMORY": "failed",
    "PREEMPTED": "failed",
    "RECONFIG_FAIL": "failed",
    "SPECIAL_EXIT": "failed",
    "TIMEOUT": "failed",
}
"""States of jobs that have ended, and what the simulator makes of them."""

WAITING = {
    "PENDING": "pending: never started by the end of the export",
    "REQUEUED": "requeued: waiting at the end of the export",
    "REQUEUE_HOLD": "requeued: waiting at the end of the export",
    "CONFIGURING": "pending: never started by the end of the export",
    "RUNNING": "still running at the end of the export: running time unknown",
    "COMPLETING": "still running at the end of the export: running time unknown",
    "RESIZING": "still running at the end of the export: running time unknown",
    "SIGNALING": "still running at the end of the export: running time unknown",
    "STAGE_OUT": "still running at the end of the export: running time unknown",
    "STOPPED": "suspended at the end of the export: running time unknown",
    "SUSPENDED": "suspended at the end of the export: running time unknown",
}
"""States of jobs that have not ended, and why they cannot be replayed."""

_ARRAY = re.compile(r"^\d+_\[([0-9,\-:]+)(?:%(\d+))?\]$")
_SLICE = re.compile(r"(?:^|[_-])([1-7])g\.(\d{1,3})gb")
"""Name of a slice made by MIG: sevenths of the device's compute, and memory."""
_MOST_TASKS = 10_000_000


class Asked(msgspec.Struct, frozen=True):
    """Resources from a TRES list; None where it does not say.

    Parameters
    ----------
    shared : {"", "shard", "slice"}
        Part of a device: shards (``gres/shard``, of unknown size), or slices made by MIG.
    slice_gib, slice_sevenths : int
        Memory and compute of such a slice, from its name (``1g.10gb``); 0 where unknown.
    """

    gpus: int = 0
    gpu_type: str = ""
    cpus: int | None = None
    memory_bytes: int | None = None
    nodes: int | None = None
    shared: str = ""
    slice_gib: int = 0
    slice_sevenths: int = 0


class Limit(msgspec.Struct, frozen=True):
    """A time limit: seconds (0 if there is none), and where it comes from."""

    seconds: float
    kind: str = "set"


def parse_state(text: str) -> str:
    """The state without what follows it.

    >>> parse_state("CANCELLED by 1001"), parse_state("OUT_OF_ME+"), parse_state("resting")
    ('CANCELLED', 'OUT_OF_MEMORY', '')
    """
    word = text.strip().split(" ")[0].upper()
    known = [*OUTCOMES, *WAITING]
    if word.endswith("+"):
        # Columns of fixed width cut words off and mark that with a plus.
        near = [state for state in known if state.startswith(word[:-1])]
        return near[0] if len(near) == 1 else ""
    return word if word in known else ""


def parse_limit(text: str) -> Limit:
    """A ``Timelimit``: a duration, minutes, or a word.

    >>> parse_limit("2-00:00:00"), parse_limit("60")
    (Limit(seconds=172800.0, kind='set'), Limit(seconds=3600.0, kind='set'))
    >>> parse_limit("UNLIMITED").kind, parse_limit("Partition_Limit").kind
    ('none', 'inherited')

    Raises
    ------
    QuantityError
        If it is none of these.
    """
    word = text.strip()
    if not word:
        return Limit(0.0, "not given")
    if word.upper() == "UNLIMITED":
        return Limit(0.0, "none")
    if word.lower() in {"partition_limit", "none", "invalid", "unknown"}:
        return Limit(0.0, "inherited" if word.lower() == "partition_limit" else "not given")
    if re.fullmatch(r"\d{1,9}", word):
        return Limit(int(word) * 60.0)
    hours = re.fullmatch(r"(\d{1,6})-(\d{1,2})", word)
    if hours:
        return Limit(int(hours[1]) * 86400.0 + int(hours[2]) * 3600.0)
    return Limit(parse_duration(word))


def parse_memory(text: str, cpus: int | None, nodes: int | None) -> tuple[int, str]:
    """A ``ReqMem`` as bytes for the whole job, and what had to be assumed.

    ``4Gc`` is for each core, ``4Gn`` for each node, ``4G`` for the job; bare numbers are MiB, as in
    Slurm. Where the number of cores or nodes is not known, one is taken and said.

    >>> parse_memory("4Gc", 8, None)[0] // 2**30, parse_memory("32000M", None, None)[0] // 2**20
    (32, 32000)

    Raises
    ------
    QuantityError
        If it is not a size.
    """
    word = text.strip()
    if not word or word in {"0", "0n", "0c"}:
        return 0, ""
    each = word[-1] if len(word) > 1 and word[-1] in "cn" else ""
    size = parse_bytes(word.removesuffix(each), unit="MiB")
    if each == "c":
        return size * (
            cpus or 1
        ), "" if cpus else "ReqMem is per core and no number of cores is given: one is taken"
    if each == "n":
        return size * (
            nodes or 1
        ), "" if nodes else "ReqMem is per node and no number of nodes is given: one is taken"
    return size, ""


def parse_tres(text: str) -> Asked:
    """Read ``cpu=8,mem=64G,node=1,gres/gpu=2`` or an older ``gpu:a100:2``.

    The count without a type is the total where both stand there, as Slurm writes them. Shards
    (``gres/shard=3``) are parts of one device; types such as ``1g.10gb`` are slices of devices.

    >>> parse_tres("cpu=4,gres/gpu:a100=1").gpu_type, parse_tres("gres/shard=3").shared
    ('a100', 'shard')

    Raises
    ------
    QuantityError
        If an entry that matters cannot be read.
    """
    total: int | None = None
    typed: dict[str, int] = {}
    plain: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = entry.partition("=")
        if not equals and (head := key.split(":")[0].removeprefix("gres/")) in {"gpu", "shard"}:
            parts = re.sub(r"\(.*", "", key).split(":")
            key = f"gres/{head}" + (f":{parts[1]}" if len(parts) > 2 else "")
            value = parts[-1] if len(parts) > 1 else "1"
        if key == "gres/gpu":
            total = _whole(value, entry)
        elif key.startswith("gres/gpu:"):
            kind = key.removeprefix("gres/gpu:")
            typed[kind] = typed.get(kind, 0) + _whole(value, entry)
        else:
            plain[key] = value
    gpus = total if total is not None else sum(typed.values())
    kinds = sorted(typed)
    shards = sum(_whole(plain[key], key) for key in plain if key.split(":")[0] == "gres/shard")
    sliced = [found for kind in kinds if (found := _SLICE.search(kind))]
    whole = gpus == 0 or len(sliced) < len(kinds) or not kinds
    return Asked(
        gpus=gpus or min(shards, 1),
        gpu_type=kinds[0] if len(kinds) == 1 and not sliced else "",
        shared="shard" if shards and not gpus else "" if whole else "slice",
        slice_gib=0 if whole else max(int(found[2]) for found in sliced),
        slice_sevenths=0 if whole else max(int(found[1]) for found in sliced),
        cpus=_whole(plain["cpu"], "cpu") if "cpu" in plain else None,
        memory_bytes=parse_bytes(plain["mem"], unit="MiB") if plain.get("mem") else None,
        nodes=_whole(plain["node"], "node") if "node" in plain else None,
    )


def _whole(text: str, entry: str) -> int:
    if not re.fullmatch(r"\d{1,7}", text.strip()):
        raise QuantityError(f"{entry!r} does not hold a whole number")
    return int(text)


def array_tasks(job_id: str) -> tuple[int, int] | None:
    """Tasks of a waiting array, and how many may run at once (0: all); None for another id.

    >>> array_tasks("103_[1-4%2]"), array_tasks("7_[1,3,5-9:2]"), array_tasks("103_2")
    ((4, 2), (5, 0), None)
    """
    found = _ARRAY.match(job_id.strip())
    if not found:
        return None
    count = sum(_range_sizes(found[1].split(",")))
    return (count, int(found[2] or 0)) if 0 < count <= _MOST_TASKS else None


def _range_sizes(parts: Iterable[str]) -> Iterable[int]:
    for part in parts:
        found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", part)
        if not found or (found[3] and int(found[3]) == 0):
            yield 0
            continue
        low, high, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        yield max(0, (high - low) // step + 1)
