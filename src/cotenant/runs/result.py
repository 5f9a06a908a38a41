"""One run's results, as frames and numbers."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cotenant.errors import ConfigError
from cotenant.runs.manifest import read_manifest
from cotenant.runs.single import EVENTS, JOBS, METRICS, TIMELINE

if TYPE_CHECKING:
    import polars as pl

    from cotenant.model.events import Event

__all__ = ["Result"]


class Result:
    """What one policy did with one seed.

    Parameters
    ----------
    folder : path
        Folder of the run, with its log and tables.
    policy : str
    seed : int
    temporary : Path, optional
        A folder to remove when the result is no longer used, where none was named.
    """

    def __init__(self, folder: str | Path, *, policy: str, seed: int, temporary: Path | None = None) -> None:
        self.folder, self.policy, self.seed = Path(folder), policy, seed
        if temporary is not None:
            weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)

    @classmethod
    def open(cls, folder: str | Path, policy: str | None = None, seed: int | None = None) -> Result:
        """Open a run of a folder written earlier.

        Parameters
        ----------
        folder : path
            What ``cotenant simulate -o`` or ``simulate(out=...)`` wrote.
        policy, seed : optional
            Which of its runs; needed only where there are several.

        Raises
        ------
        ConfigError
            If there is no such run, or it is not the only one.
        """
        manifest, root = read_manifest(Path(folder))
        found = [
            run
            for run in manifest.runs
            if policy in (None, run.policy) and seed in (None, run.seed) and run.log_sha256
        ]
        if len(found) != 1:
            known = ", ".join(f"{run.policy} seed {run.seed}" for run in manifest.runs if run.log_sha256)
            asked = ", ".join(f"{k} {v!r}" for k, v in (("policy", policy), ("seed", seed)) if v is not None)
            what = f"no run of {asked}" if asked else "no finished run"
            if found:
                one = f"policy={found[0].policy!r}, seed={found[0].seed}"
                what = f"{len(found)} runs; say which, for example Result.open({str(folder)!r}, {one})"
            raise ConfigError(f"{folder}: {what}; it has: {known or 'none'}")
        return cls(root / found[0].folder, policy=found[0].policy, seed=found[0].seed)

    @cached_property
    def jobs(self) -> pl.DataFrame:
        """One row for each job; ``docs/metrics.md`` names the columns."""
        return self._table(JOBS)

    @cached_property
    def timeline(self) -> pl.DataFrame:
        """Means over bins of time: devices, queue, fragmentation."""
        return self._table(TIMELINE)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Numbers of the whole run; None where a value does not apply."""
        found: dict[str, Any] = msgspec.json.decode((self.folder / METRICS).read_bytes())
        return found

    @cached_property
    def assumptions(self) -> list[str]:
        """What had to be assumed about the workload and the cluster."""
        return read_manifest(self.folder.parents[2])[0].assumptions

    @cached_property
    def warnings(self) -> list[str]:
        """What makes the numbers doubtful, such as device types that the forecast was never measured on."""
        return read_manifest(self.folder.parents[2])[0].warnings

    def events(self) -> Iterator[Event]:
        """The log, event by event."""
        from cotenant.engine.log import read_log

        return read_log(self.folder / EVENTS)

    def _table(self, name: str) -> pl.DataFrame:
        import polars as pl

        return pl.read_parquet(self.folder / name)

    def __repr__(self) -> str:
        return f"Result(policy={self.policy!r}, seed={self.seed}, folder={str(self.folder)!r})"
