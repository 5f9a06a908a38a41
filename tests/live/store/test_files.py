"""What can be wrong with a file, a disk or a server, and what is said then."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from cotenant.engine.log import read_log
from cotenant.errors import ConfigError, StoreError
from cotenant.live.store import SqlStore, backup, check, export, open_store
from cotenant.model.events import NodeDown, NodeUp
from cotenant.model.liveports import Request

Opener = Callable[..., SqlStore]
FILLER = "x" * 2000


def filled(where: str | Path, count: int = 200) -> SqlStore:
    """A store with events 1 to ``count``, written in batches of ten."""
    store = open_store(where)
    lease = store.acquire("one", 0.0)
    assert lease is not None
    for n in range(0, count, 10):
        store.append(lease, [NodeDown(float(n), n + k, cause=FILLER) for k in range(10)], 0)
    return store


def python(code: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)


def test_files_can_be_read_by_their_owner_alone(tmp_path: Path, opened: Opener) -> None:
    mask = os.umask(0)
    try:
        store = opened(tmp_path / "state" / "cotenant.db")
        store.remember("a", "b")
    finally:
        os.umask(mask)
    files = sorted((tmp_path / "state").iterdir())
    assert [f.name for f in files] == ["cotenant.db", "cotenant.db-shm", "cotenant.db-wal"]
    assert {stat.S_IMODE(f.stat().st_mode) for f in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    files[0].chmod(0o644)
    assert check(store) == [f"{files[0]} can be read by others (mode 644); chmod 600"]
    opened(files[0])
    assert check(store) == []


def test_a_full_disk_is_told_loses_nothing_and_is_survived() -> None:
    folder = Path(tempfile.mkdtemp(prefix="cotenant-full-"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        folder.rmdir()
        pytest.skip("a small file system cannot be mounted here (needs root)")
    try:
        (folder / "filler").write_bytes(b"\0" * (1 << 20))
        with closing(open_store(folder / "cotenant.db")) as store:
            _fill_up(store, folder / "filler")
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


def _fill_up(store: SqlStore, filler: Path) -> None:
    lease = store.acquire("one", 60.0)
    assert lease is not None
    written = 0
    with pytest.raises(StoreError, match=r"cannot write the log: .*disk is full; free space"):
        while True:
            written = store.append(lease, [NodeDown(0.0, n, cause=FILLER) for n in range(50)], 0)
    with pytest.raises(StoreError, match=r"cannot accept requests: .*disk is full"):
        for n in range(100):
            store.accept([Request(key=f"{n}", tenant="t", kind="submit", body={"f": FILLER * 50})], 0.0)
    assert [w.request.key for w in store.waiting(0)] == [str(k) for k in range(n)]
    assert written >= 50
    assert len(list(store.read())) == written == store.count()
    filler.unlink()
    assert store.append(lease, [NodeUp(1.0, 0)], 0) == written + 1
    assert check(store) == []


def test_a_limit_on_sizes_of_files_is_told(tmp_path: Path) -> None:
    done = python(
        f"""
        import resource
        from cotenant.errors import StoreError
        from cotenant.live.store import open_store
        from cotenant.model.events import NodeDown
        store = open_store({str(tmp_path / "cotenant.db")!r})
        lease = store.acquire("one", 0.0)
        store.append(lease, [NodeDown(0.0, 0)] * 10, 0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        try:
            store.append(lease, [NodeDown(0.0, 0, cause="x" * 1000)] * 1000, 0)
        except StoreError as error:
            print(error)
        print(len(list(store.read())))
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "no limit on sizes of files" in done.stdout
    assert done.stdout.splitlines()[-1] == "10"


@pytest.mark.parametrize("cut", [1, 100, 4095])
def test_a_torn_tail_costs_the_last_batch_at_most_and_never_half_of_one(tmp_path: Path, cut: int) -> None:
    store = filled(tmp_path / "live.db", 50)
    for end in ("", "-wal"):
        # As after a crash: the log's companion was not folded into it.
        shutil.copy(tmp_path / f"live.db{end}", tmp_path / f"torn.db{end}")
    store.close()
    wal = tmp_path / "torn.db-wal"
    os.truncate(wal, wal.stat().st_size - cut)
    torn = open_store(tmp_path / "torn.db")
    assert [number for number, _ in torn.read()] == list(range(1, 41))
    assert check(torn) == []
    lease = torn.acquire("two", 60.0)
    assert lease is not None
    assert torn.append(lease, [NodeUp(9.0, 0)], 0) == 41
    torn.close()


def test_rubbish_behind_the_tail_is_ignored(tmp_path: Path) -> None:
    store = filled(tmp_path / "live.db", 50)
    for end in ("", "-wal"):
        shutil.copy(tmp_path / f"live.db{end}", tmp_path / f"torn.db{end}")
    store.close()
    with (tmp_path / "torn.db-wal").open("ab") as wal:
        wal.write(b"\xff" * 5000)
    torn = open_store(tmp_path / "torn.db")
    assert torn.count() == 50
    torn.close()


def test_a_damaged_file_is_told_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "cotenant.db"
    filled(path).close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2 // 4096 * 4096)
        file.write(b"\xa5" * 8192)
    store = open_store(path)
    found = check(store)
    assert found
    assert "damaged" in found[0]
    with pytest.raises(StoreError, match=r"damaged.*last backup"):
        list(store.read())
    store.close()


def test_a_file_that_is_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("these are my notes, and no database\n" * 100)
    text.chmod(0o600)
    with pytest.raises(StoreError, match="damaged, or no SQLite file"):
        open_store(text)
    assert text.read_text().startswith("these are my notes")
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE songs (title)")
    connection.close()
    with pytest.raises(StoreError, match="holds a database that is not ours"):
        open_store(other)
    with pytest.raises(StoreError, match="is a folder"):
        open_store(tmp_path)
    with pytest.raises(ConfigError, match="not a database that we use"):
        open_store("mysql://host/db")


def test_what_must_be_there_already_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no log here; cotenant up makes one"):
        open_store(tmp_path / "none" / "cotenant.db", create=False)
    assert not (tmp_path / "none").exists()


def test_a_folder_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="cotenant-ro-"))
    code = f"""
        import os
        from cotenant.errors import StoreError
        from cotenant.live.store import open_store
        # What is imported late may lie where only root may read.
        open_store({str(tmp_path / "first.db")!r}).close()
        if os.getuid() == 0:
            # Root may write anywhere, so be somebody else.
            os.setegid(65534)
            os.seteuid(65534)
        try:
            open_store({str(folder / "cotenant.db")!r})
        except StoreError as error:
            print(error)
        """
    try:
        folder.chmod(0o555)
        done = python(code)
        assert "cannot be opened for writing: Permission denied; see who owns it" in done.stdout, done.stderr
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_file_locked_by_another_is_told_after_the_wait(tmp_path: Path, opened: Opener) -> None:
    store = opened(tmp_path / "cotenant.db", busy_s=0.1)
    other = sqlite3.connect(tmp_path / "cotenant.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="another process holds it locked"):
        store.accept([Request(key="a", tenant="t", kind="submit", body={})], 0.0)
    # Readers do not mind.
    assert store.count() == 0
    other.execute("ROLLBACK")
    other.close()
    assert len(store.accept([Request(key="a", tenant="t", kind="submit", body={})], 0.0)) == 1


def test_a_locked_or_missing_database_server_is_told(server: object, opened: Opener) -> None:
    import psycopg

    where = server.place()  # type: ignore[attr-defined]
    store = opened(where, busy_s=0.1)
    schema = where.rpartition("%3D")[2]
    with psycopg.connect(server.plain()) as other:  # type: ignore[attr-defined]
        other.execute(f"LOCK TABLE {schema}.cotenant_requests IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreError, match="another session holds it locked"):
            store.accept([Request(key="a", tenant="t", kind="submit", body={})], 0.0)
    with pytest.raises(StoreError, match="no such database; create it"):
        opened(where.replace("/postgres?", "/nosuch?"))
    with pytest.raises(StoreError, match="does not answer") as caught:
        opened("postgresql://user:hidden@/x?host=/nowhere")
    assert "hidden" not in str(caught.value)
    # Settings of the server that would make a commit less than durable are overruled.
    with store.engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"


def test_a_gap_is_damage_and_not_skipped(place: str, opened: Opener) -> None:
    from sqlalchemy import delete

    from cotenant.live.store.tables import events, requests

    store = opened(place)
    lease = store.acquire("one", 60.0)
    assert lease is not None
    store.append(lease, [NodeUp(0.0, n) for n in range(9)], 0)
    store.accept([Request(key=f"{n}", tenant="t", kind="submit", body={}) for n in range(3)], 0.0)
    with store.engine.begin() as connection:
        connection.execute(delete(events).where(events.c.seq.in_([4, 5])))
        connection.execute(delete(requests).where(requests.c.seq == 3))
    with pytest.raises(StoreError, match="events 4 to 5 are missing"):
        list(store.read())
    found = check(store)
    assert found[:3] == [
        "events are missing: 7 between 1 and 9",
        "requests: 2 found, 3 were accepted",
        "jobs: 2 found, 3 were accepted",
    ]
    assert "events 4 to 5 are missing" in found[3]


def test_an_event_of_another_version_is_told_by_number(place: str, opened: Opener) -> None:
    from sqlalchemy import update

    from cotenant.live.store.tables import events

    store = opened(place)
    lease = store.acquire("one", 60.0)
    assert lease is not None
    store.append(lease, [NodeUp(0.0, 0), NodeUp(1.0, 0)], 0)
    with store.engine.begin() as connection:
        connection.execute(update(events).where(events.c.seq == 2).values(body='{"e":"warped","t":1}'))
    with pytest.raises(StoreError, match="event 2 cannot be read"):
        list(store.read())


def test_the_log_as_a_file_is_read_by_what_reads_simulated_ones(
    place: str, opened: Opener, tmp_path: Path
) -> None:
    store = opened(place)
    lease = store.acquire("one", 60.0)
    assert lease is not None
    events = [NodeDown(0.5, n, cause="für\u2028🚀\x1b") for n in range(5)]
    store.append(lease, events, 0)
    assert export(store, tmp_path / "events.jsonl") == 5
    assert list(read_log(tmp_path / "events.jsonl")) == events
    assert [f.name for f in tmp_path.iterdir() if f.name.endswith(".tmp")] == []


def test_a_copy_made_while_the_log_is_in_use_is_whole(tmp_path: Path) -> None:
    store = filled(tmp_path / "cotenant.db", 100)
    backup(store, tmp_path / "copy.db")
    lease = store.acquire("two", 60.0)
    assert lease is not None
    store.append(lease, [NodeUp(9.0, 0)], 0)
    copy = open_store(tmp_path / "copy.db", create=False)
    assert (copy.count(), store.count()) == (100, 101)
    assert check(copy) == []
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    with pytest.raises(ConfigError, match="exists"):
        backup(store, tmp_path / "copy.db")
    with pytest.raises(StoreError, match="the copy cannot be written"):
        backup(store, tmp_path / "none" / "copy.db")
    copy.close()
    store.close()
