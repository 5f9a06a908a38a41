"""Places for a store: a file, and a schema of a PostgreSQL server that the tests start."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from cotenant.live.store import SqlStore, open_store

_numbers = itertools.count()


class Server:
    """A PostgreSQL server of our own, on a socket in a temporary folder; no network."""

    def __init__(self, folder: Path, tools: Path) -> None:
        self.folder, self.tools = folder, tools
        self.process: subprocess.Popen[bytes] | None = None
        user = {}
        if os.getuid() == 0:
            # The server refuses to run as root.
            found = pwd.getpwnam("postgres")
            os.chown(folder, found.pw_uid, found.pw_gid)
            user = {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
        self.options: dict[str, Any] = {**user, "cwd": folder}

    def make(self) -> None:
        words = ["--no-locale", "--encoding=UTF8", "--auth=trust", "--username=cotenant", "--no-sync"]
        subprocess.run(
            [self.tools / "initdb", *words, "-D", self.folder / "data"],
            check=True,
            capture_output=True,
            **self.options,
        )

    def start(self) -> None:
        words = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={self.folder}"]
        log = (self.folder / "log").open("ab")
        self.process = subprocess.Popen(
            [self.tools / "postgres", "-D", self.folder / "data", *words],
            stdout=log,
            stderr=log,
            **self.options,
        )
        log.close()
        import psycopg

        end = time.monotonic() + 180
        while True:
            try:
                psycopg.connect(self.plain()).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise
                time.sleep(0.05)

    def stop(self, signal_number: int) -> None:
        if self.process is not None:
            self.process.send_signal(signal_number)
            self.process.wait(180)
            self.process = None

    def plain(self) -> str:
        return f"postgresql://cotenant@/postgres?host={quote(str(self.folder))}"

    def place(self) -> str:
        """A schema of its own, as a URL for a store."""
        import psycopg

        name = f"t{next(_numbers)}"
        with psycopg.connect(self.plain(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")  # type: ignore[call-overload,unused-ignore]
        return f"{self.plain()}&options={quote(f'-csearch_path={name}')}"


def _tools() -> Path | None:
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    homes = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return homes[-1].parent if homes else None


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A running server; skips where PostgreSQL is not installed, and fails there under ``CI=true``."""
    tools = _tools()
    if tools is None:
        reason = "no PostgreSQL here (initdb not found); install it to test the store on it"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="cotenant-pg-", dir="/tmp"))
    folder.chmod(0o755)
    found = Server(folder, tools)
    try:
        found.make()
        found.start()
        yield found
    finally:
        found.stop(2)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store may be, on either database."""
    if request.param == "sqlite":
        return str(tmp_path / "state" / "cotenant.db")
    found: Server = request.getfixturevalue("server")
    return found.place()


@pytest.fixture
def opened() -> Iterator[Callable[..., SqlStore]]:
    """Opens stores, and closes them at the end."""
    stores: list[SqlStore] = []

    def get(where: str | Path, **options: Any) -> SqlStore:
        stores.append(open_store(where, **options))
        return stores[-1]

    yield get
    for store in stores:
        store.close()
