"""The text of NVIDIA's DCGM exporter (Prometheus exposition format, port 9400).

One line a device and metric. Where pods share a device, newer exporters repeat the device's
value once for each pod: it is the device's, and counts once. Under MIG the whole device's busy
time (``DCGM_FI_DEV_GPU_UTIL``) says nothing about an instance and is left out.
Names of the metrics: NVIDIA's DCGM field identifiers.
"""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

import msgspec

from cotenant.errors import ConfigError
from cotenant.profiles.samplers.readings import DeviceReading, Failure, Snapshot
from cotenant.profiles.samplers.words import number

__all__ = ["DcgmPage", "DcgmSampler", "Metric", "parse_dcgm", "parse_exposition"]

_PERCENT = {
    "DCGM_FI_DEV_GPU_UTIL": "busy_pct",
    "DCGM_FI_DEV_MEM_COPY_UTIL": "memory_busy_pct",
}
_RATIO = {
    "DCGM_FI_PROF_SM_ACTIVE": "sm_active_pct",
    "DCGM_FI_PROF_SM_OCCUPANCY": "sm_occupancy_pct",
    "DCGM_FI_PROF_DRAM_ACTIVE": "dram_active_pct",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "engine_active_pct",
}
_PLAIN = {"DCGM_FI_DEV_FB_USED": "memory_used_mib", "DCGM_FI_DEV_POWER_USAGE": "power_w"}
_FREE = "DCGM_FI_DEV_FB_FREE"
_RESERVED = "DCGM_FI_DEV_FB_RESERVED"
_ROUNDING = 1.001
"""A ratio a hair above 1 is rounding, more is no ratio."""

_LINE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)\s*(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*$")
_LABEL = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPES = {"n": "\n", "\\": "\\", '"': '"'}


class Metric(msgspec.Struct, frozen=True):
    """One line: the metric's name, its labels, its value as text."""

    name: str
    labels: dict[str, str]
    value: str


class DcgmPage(msgspec.Struct, frozen=True):
    """What a page of the exporter says.

    Parameters
    ----------
    devices : tuple of DeviceReading
        Each device, or MIG instance, once.
    pods : dict
        Device to the pods (``namespace/pod/container``) to which the exporter attaches it. They
        share the device's values; none of them is theirs alone.
    failures : tuple of Failure
        Lines that could not be read, or values that contradict each other.
    """

    devices: tuple[DeviceReading, ...]
    pods: dict[str, tuple[str, ...]]
    failures: tuple[Failure, ...]


def parse_exposition(text: str) -> tuple[list[Metric], list[Failure]]:
    """Split Prometheus text into metrics; comments and empty lines are passed over."""
    metrics: list[Metric] = []
    failures: list[Failure] = []
    for count, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.match(line.strip())
        labels = None if found is None else _labels(found.group(2) or "")
        if found is None or labels is None:
            failures.append(Failure(device="", reason=f"line {count} is no metric: {line.strip()[:80]}"))
            continue
        metrics.append(Metric(found.group(1), labels, found.group(3)))
    return metrics, failures


def _labels(text: str) -> dict[str, str] | None:
    found: dict[str, str] = {}
    place = 0
    while place < len(text):
        label = _LABEL.match(text, place)
        if label is None:
            return None if text[place:].strip() else found
        found[label.group(1)] = re.sub(
            r"\\(.)", lambda m: _ESCAPES.get(m.group(1), m.group(0)), label.group(2)
        )
        place = label.end()
    return found


def parse_dcgm(text: str) -> DcgmPage:
    """Read a page of the exporter."""
    metrics, failures = parse_exposition(text)
    devices: dict[str, dict[str, Any]] = {}
    pods: dict[str, dict[str, None]] = {}
    for metric in metrics:
        if not metric.name.startswith("DCGM_"):
            continue  # the exporter's own counters
        name = _device_of(metric.labels)
        if name is None:
            failures.append(Failure(device="", reason=f"{metric.name} names no device"))
            continue
        device = devices.setdefault(name, _first_seen(metric.labels))
        _note_pod(pods.setdefault(name, {}), metric.labels)
        value = number(metric.value)
        if value is None:
            continue
        earlier = device["raw"].setdefault(metric.name, value)
        if earlier != value:
            reason = f"{metric.name} is both {earlier:g} and {value:g}; the first is used"
            failures.append(Failure(device=name, reason=reason))
    split = {d["uuid"] for d in devices.values() if d["mig"]}
    read = tuple(_reading(name, device, device["uuid"] in split) for name, device in sorted(devices.items()))
    return DcgmPage(read, {name: tuple(sorted(p)) for name, p in sorted(pods.items())}, tuple(failures))


def _device_of(labels: dict[str, str]) -> str | None:
    """One name for a device, and one for each MIG instance of it."""
    base = labels.get("UUID") or labels.get("uuid") or labels.get("gpu")
    instance = labels.get("GPU_I_ID", "")
    return None if not base else f"{base}/{instance}" if instance else base


def _first_seen(labels: dict[str, str]) -> dict[str, Any]:
    index = labels.get("gpu", "")
    return {
        "uuid": labels.get("UUID") or labels.get("uuid") or index,
        "index": int(index) if index.isdigit() else None,
        "model": labels.get("modelName", ""),
        "mig": bool(labels.get("GPU_I_ID", "")),
        "raw": {},
    }


def _note_pod(pods: dict[str, None], labels: dict[str, str]) -> None:
    if labels.get("pod"):
        pods["/".join(labels.get(part, "") for part in ("namespace", "pod", "container"))] = None


def _reading(name: str, device: dict[str, Any], mig: bool) -> DeviceReading:
    raw: dict[str, float] = device["raw"]
    meters: dict[str, float] = {}
    for metric, value in raw.items():
        if metric in _PERCENT and not (mig and metric == "DCGM_FI_DEV_GPU_UTIL"):
            meters[_PERCENT[metric]] = value
        elif metric in _RATIO and 0.0 <= value <= _ROUNDING:
            meters[_RATIO[metric]] = min(100.0 * value, 100.0)
        elif metric in _PLAIN:
            meters[_PLAIN[metric]] = value
    if "DCGM_FI_DEV_FB_USED" in raw and _FREE in raw:
        meters["memory_total_mib"] = raw["DCGM_FI_DEV_FB_USED"] + raw[_FREE] + raw.get(_RESERVED, 0.0)
    return DeviceReading(device=name, index=device["index"], model=device["model"], mig=mig, **meters)


class DcgmSampler:
    """Reads an exporter over HTTP.

    Parameters
    ----------
    url : str
        For example ``http://node1:9400/metrics``.
    timeout_s : float
    """

    def __init__(self, url: str, *, timeout_s: float = 5.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"{url!r} is no address of an exporter; write http://HOST:9400/metrics")
        self.url, self.timeout_s = url, timeout_s

    def read(self, pids: Sequence[int] = ()) -> Snapshot:
        """Fetch the page; a source that does not answer is a failure, not a device at rest."""
        del pids  # the exporter knows pods, no processes
        now = time.monotonic_ns()
        try:
            with urllib.request.urlopen(self.url, timeout=self.timeout_s) as answer:  # noqa: S310
                text = answer.read().decode("utf-8", errors="replace")
        except (urllib.error.URLError, OSError, ValueError) as error:
            return Snapshot(time_ns=now, failures=(Failure(device="", reason=f"{self.url}: {error}"),))
        page = parse_dcgm(text)
        return Snapshot(time_ns=now, devices=page.devices, failures=page.failures)

    def close(self) -> None:
        """Nothing is held."""
