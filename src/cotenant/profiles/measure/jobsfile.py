"""The file of jobs to measure (TOML): what to run, on what, in which sets, how long.

::

    [measure]
    device = "cpu:0"
    budget = "8m"
    pairs = "all"                     # or [["a", "b"], ...]
    triples = 4                       # so many, drawn with the seed; or a list

    [[job]]
    name = "conv"
    builtin = "convolution"           # an included job
    batch = 16

    [[job]]
    name = "mine"
    command = ["python", "train.py", "--batch", "32"]
    model = "MyNet"
    batch = 32
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from cotenant.errors import ConfigError, QuantityError
from cotenant.model.quantities import parse_bytes, parse_duration
from cotenant.profiles.jobs.included import find_included
from cotenant.profiles.runs import JobConfig

__all__ = ["JobSpec", "MeasureFile", "MeasureSettings", "override", "parse_jobs", "read_jobs"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
Clock = Literal["", "available", "wall"]


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job of the file.

    Parameters
    ----------
    name : str
        Short name, used in the file, in the journal and for logs.
    builtin : str
        An included job, or
    command : list of str
        one's own, which reports its steps (``profiles.jobs.steps``).
    batch, amp, scale, wait_ms
        Of an included job; for one's own, ``batch`` and ``amp`` describe what the command does.
    model, family, dataset : str
        How the job is called in tables.
    env : dict
        Additional environment.
    folder : str
        Working directory of a command, from the file's folder, which it is if left out.
    memory_limit : str
        Limit of the address space, such as ``4GiB``; none if empty.
    """

    name: str
    builtin: str = ""
    command: list[str] = []
    batch: int = 0
    amp: bool | None = None
    scale: int = 1
    wait_ms: float = 0.0
    model: str = ""
    family: str = ""
    dataset: str = ""
    env: dict[str, str] = {}
    folder: str = ""
    memory_limit: str = ""

    @property
    def config(self) -> JobConfig:
        """The job as tables name it."""
        if not self.builtin:
            amp = -1 if self.amp is None else int(self.amp)
            return JobConfig(
                model=self.model or self.name,
                family=self.family,
                dataset=self.dataset,
                batch=self.batch,
                amp=amp,
            )
        found = find_included(self.builtin)
        model = found.name
        if self.scale != 1:
            model += f"-x{self.scale}"
        if self.wait_ms:
            model += f"-wait{self.wait_ms:g}"
        return JobConfig(
            model=self.model or model,
            family=self.family or found.family,
            dataset=self.dataset or found.dataset,
            batch=self.batch or found.batch,
            amp=int(bool(self.amp)),
        )

    @property
    def memory_bytes(self) -> int | None:
        """The limit as a number."""
        return parse_bytes(self.memory_limit) if self.memory_limit else None


class MeasureSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to measure. Durations are texts such as ``1.5s`` or ``8m``.

    Parameters
    ----------
    source : str
        Name of the campaign in the tables.
    device : str
        ``cpu:0-1`` or ``cuda:0``.
    budget : str
        Time for everything, start of jobs included, over all sessions.
    pairs : "all", "none" or list of pairs
    self_pairs : bool
        Whether ``all`` holds two copies of one job.
    triples : int or list of triples
    warmup_steps, warmup : int, str
        What a fresh job does before anything of it counts.
    settle : str
        What is left out after jobs begin to run side by side.
    window, min_steps, longest_window
        A measurement lasts at least ``window`` and ``min_steps`` steps of each job, at most
        ``longest_window``.
    min_repeats, max_repeats, target_pct
        A set is repeated until the 95% interval of each job's normalised speed is at most
        this many per cent wide on either side.
    solo_every : str
        The run alone that a co-run is compared with is not older.
    resident : bool, optional
        Whether jobs stay loaded and are suspended between measurements (default on CPUs), or
        started anew for each (default on GPUs).
    threads : int
        CPU threads of each job's libraries.
    clock : "available" or "wall"
        ``available`` leaves out the time in which processes outside the set held the cores
        (default on CPUs); ``wall`` counts everything.
    disturbed_pct : float
        Above so much time held by others a measurement is marked, and set aside if others suffice.
    start_timeout : str
    dcgm : str
        Address of a DCGM exporter that reads the NVIDIA device, for SM active, occupancy and
        memory bandwidth; none if empty.
    seed : int
        Of the order of measurements, of drawn triples and of the included jobs.
    """

    source: str = "measured"
    device: str = ""
    budget: str = "10m"
    pairs: Literal["all", "none"] | list[tuple[str, str]] = "all"
    self_pairs: bool = True
    triples: int | list[tuple[str, str, str]] = 0
    warmup_steps: int = 5
    warmup: str = "0.5s"
    settle: str = "0.25s"
    window: str = "1.5s"
    min_steps: int = 10
    longest_window: str = "15s"
    min_repeats: int = 2
    max_repeats: int = 8
    target_pct: float = 1.5
    solo_every: str = "40s"
    resident: bool | None = None
    threads: int = 1
    clock: Clock = ""
    disturbed_pct: float = 5.0
    start_timeout: str = "120s"
    dcgm: str = ""
    seed: int = 0

    def seconds(self, name: str) -> float:
        """A duration of the settings in seconds."""
        return parse_duration(getattr(self, name))


class MeasureFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of jobs, checked.

    Parameters
    ----------
    settings : MeasureSettings
    jobs : tuple of JobSpec
    base : str
        Folder of the file, for relative working directories.
    """

    settings: MeasureSettings
    jobs: tuple[JobSpec, ...]
    base: str = ""

    def job(self, name: str) -> JobSpec:
        """A job by its name."""
        return next(job for job in self.jobs if job.name == name)


def read_jobs(path: Path | str) -> MeasureFile:
    """Read a file of jobs.

    Raises
    ------
    ConfigError
        If it cannot be read or used; the message says where and why.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: {getattr(error, 'strerror', None) or error}") from None
    return parse_jobs(text, name=str(file), base=str(file.resolve().parent))


def parse_jobs(text: str, *, name: str = "jobs", base: str = "") -> MeasureFile:
    """Read the text of such a file."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: is no TOML: {error}") from None
    unknown = sorted(set(raw) - {"measure", "job"})
    if unknown:
        raise ConfigError(f'{name}: no table "{unknown[0]}"; known: [measure], [[job]]')
    settings = _convert(raw.get("measure", {}), MeasureSettings, f"{name} [measure]")
    listed = raw.get("job", [])
    if not isinstance(listed, list) or not listed:
        raise ConfigError(f"{name}: holds no [[job]]")
    jobs = tuple(_convert(one, JobSpec, f"{name} [[job]] {i}") for i, one in enumerate(listed, 1))
    for raw_job, job in zip(listed, jobs, strict=True):
        _check_job(job, f"{name} job {job.name!r}")
        if raw_job.get("batch") == 0:
            raise ConfigError(f"{name} job {job.name!r}: batch = 0; give at least 1, or leave it out")
    _check_distinct(jobs, name)
    _check_settings(settings, {job.name for job in jobs}, name)
    return MeasureFile(settings=settings, jobs=jobs, base=base)


def override(
    file: MeasureFile, *, device: str = "", budget: str = "", seed: int | None = None
) -> MeasureFile:
    """The file with what the command line gave in place of its settings; empty means as it is.

    Raises
    ------
    ConfigError
        If a value given cannot be used.
    """
    changes: dict[str, Any] = {"device": device, "budget": budget, "seed": seed}
    given = {name: value for name, value in changes.items() if value not in ("", None)}
    if budget:
        _check_duration(budget, "--budget", zero=False)
    settings = msgspec.structs.replace(file.settings, **given)
    _check_settings(settings, {job.name for job in file.jobs}, "as given")
    return msgspec.structs.replace(file, settings=settings)


def _convert(raw: Any, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}; known: {', '.join(kind.__struct_fields__)}") from None


def _check_job(job: JobSpec, where: str) -> None:
    if not _NAME.fullmatch(job.name):
        raise ConfigError(f"{where}: a name is made of letters, digits, dots, dashes and underscores")
    if bool(job.builtin) == bool(job.command):
        raise ConfigError(f"{where}: give either builtin (an included job) or command")
    if job.builtin:
        find_included(job.builtin)
    elif job.scale != 1 or job.wait_ms:
        raise ConfigError(f"{where}: scale and wait_ms are of included jobs; put them into the command")
    if job.batch < 0 or job.scale < 1 or job.wait_ms < 0:
        raise ConfigError(f"{where}: batch, scale and wait_ms cannot be negative, scale is at least 1")
    if job.memory_limit:
        try:
            _ = job.memory_bytes
        except QuantityError as error:
            raise ConfigError(f"{where}: memory_limit: {error}") from None


def _check_distinct(jobs: tuple[JobSpec, ...], name: str) -> None:
    names: set[str] = set()
    configs: dict[JobConfig, str] = {}
    for job in jobs:
        if job.name in names:
            raise ConfigError(f"{name}: two jobs are named {job.name!r}")
        names.add(job.name)
        other = configs.setdefault(job.config, job.name)
        if other != job.name:
            raise ConfigError(
                f"{name}: {other!r} and {job.name!r} would both be {job.config.label} in the tables; "
                "give one of them another model or batch"
            )


def _check_duration(text: str, where: str, *, zero: bool) -> None:
    try:
        seconds = parse_duration(text)
    except QuantityError:
        raise ConfigError(f'{where} = "{text}" is no duration; write one such as "90s" or "5m"') from None
    if seconds <= 0 and not (zero and seconds == 0):
        raise ConfigError(f'{where} = "{text}" must be positive; write a duration such as "90s" or "5m"')


def _check_settings(settings: MeasureSettings, names: set[str], name: str) -> None:
    where = f"{name} [measure]"
    for duration in ("budget", "warmup", "settle", "window", "longest_window", "solo_every", "start_timeout"):
        _check_duration(getattr(settings, duration), f"{where}: {duration}", zero=duration == "warmup")
    if settings.seconds("longest_window") < settings.seconds("window"):
        raise ConfigError(f"{where}: longest_window is shorter than window")
    if settings.min_repeats < 1 or settings.max_repeats < settings.min_repeats or settings.min_steps < 3:
        raise ConfigError(f"{where}: 1 <= min_repeats <= max_repeats and min_steps >= 3 must hold")
    if settings.target_pct <= 0 or settings.threads < 1:
        raise ConfigError(f"{where}: target_pct and threads must be positive")
    pairs = settings.pairs if isinstance(settings.pairs, list) else []
    triples = settings.triples if isinstance(settings.triples, list) else []
    for member in (member for group in [*pairs, *triples] for member in group):
        if member not in names:
            raise ConfigError(f"{where}: no job {member!r}; known: {', '.join(sorted(names))}")
