"""The registry of state blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from cotenant.errors import ConflictError, FencedError, InputError, NotFoundError, StateError, StoreError
from cotenant.pools.blocks import BLOCK_BYTES, BlockFolder, BlockId, Tier, block_id
from cotenant.pools.books import Books, holder_lives, holder_name
from cotenant.pools.room import Room
from cotenant.pools.stats import Stats, count

__all__ = ["Reader", "StateRegistry"]


class Reader:
    """One version, open for reading; its blocks stay until it is closed or superseded."""

    def __init__(self, registry: StateRegistry, number: int, job: int, version: int) -> None:
        self._registry, self._number = registry, number
        self.job, self.version = job, version
        self.meta, self.blocks = registry._content(job, version)
        self._used: dict[tuple[BlockId, str], None] = {}  # told to the books when closed

    @property
    def valid(self) -> bool:
        """No newer version has been published."""
        return self._registry._valid(self._number)

    def read(self, place: int) -> bytes:
        """One block, verified.

        Raises
        ------
        ConflictError
            If a newer version was published meanwhile: open that.
        StateError
            If the block is lost or damaged in all its copies.
        """
        if not self.valid:
            raise ConflictError(
                f"version {self.version} of the state of job {self.job} was superseded while it was read; open"
                " the newest"
            )
        data, tier = self._registry._read(self.blocks[place])
        self._used[self.blocks[place], tier] = None
        return data

    def __iter__(self) -> Iterator[bytes]:
        return (self.read(place) for place in range(len(self.blocks)))

    def close(self) -> None:
        """Let go of the blocks."""
        self._registry._close_reader(self._number, self._used)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class StateRegistry:
    """Blocks of saved state, in tiers.

    A block is written, forced to disk and renamed before it is in the books, and leaves the books
    before its file is deleted; so whatever dies, the books never speak of a block that is not
    there. Several processes may use one registry.

    Parameters
    ----------
    folder : path
        Of the books; made if it is not there.
    tiers : sequence of Tier
        Fastest first; the last must be durable.

    Raises
    ------
    InputError, StoreError
    """

    def __init__(self, folder: str | Path, tiers: Sequence[Tier]) -> None:
        if not tiers or not tiers[-1].durable or len({tier.name for tier in tiers}) != len(tiers):
            raise InputError("tiers: at least one, with names of their own, and the last one durable")
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.tiers = tuple(tiers)
        self._folders = {tier.name: BlockFolder(tier.path) for tier in tiers}
        self._books = Books(folder)
        self._room = Room(self._books, self.tiers, self._folders)
        self._holder = holder_name()
        with self._books.alone():
            self._recover()

    # -- writing ---------------------------------------------------------------------

    def put(self, data: bytes | memoryview | IO[bytes], tiers: Sequence[str] = ()) -> BlockId:
        """Store a block, if it is not there already; it stays at least until it is published or released.

        Parameters
        ----------
        data : bytes or binary stream
            Of at most ``BLOCK_BYTES`` (16 MiB).
        tiers : sequence of str, optional
            Where copies are to be; by default in the last tier.

        Raises
        ------
        InputError
            A block too large, or a tier that is not known.
        StoreError
            No room (nothing can be evicted), or a write that failed.
        """
        content = data if isinstance(data, (bytes, memoryview)) else data.read(BLOCK_BYTES + 1)
        if len(content) > BLOCK_BYTES:
            raise InputError(f"a block of more than {BLOCK_BYTES} bytes; cut it")
        names = tuple(tiers) or (self.tiers[-1].name,)
        for name in names:
            if name not in self._folders:
                raise InputError(f"no tier {name!r}; known: {', '.join(self._folders)}")
        block = block_id(content)
        with self._books.alone():
            for name in names:
                self._store(block, content, name)
            with self._books.transaction(durable=False):
                now = self._books.tick()
                self._books.run("INSERT OR IGNORE INTO blocks VALUES (?, ?)", block, len(content))
                self._books.run("INSERT OR IGNORE INTO holds VALUES (?, ?)", block, self._holder)
                for name in names:
                    self._books.run("INSERT OR REPLACE INTO copies VALUES (?, ?, ?)", block, name, now)
        return block

    def _store(self, block: BlockId, content: bytes | memoryview, tier: str) -> None:
        """See that the file is there; until the books say so it is one that nobody knows."""
        books, folder = self._books, self._folders[tier]
        there = books.one("SELECT 1 FROM copies WHERE hash = ? AND tier = ?", block, tier)
        if not there:
            self._room.make(tier, len(content))
        if not there or not folder.has(block, len(content)):
            try:
                folder.write(block, content)
            except OSError as error:
                raise StoreError(f"tier {tier}: block not written: {error.strerror or error}") from None

    def release(self, blocks: Sequence[BlockId]) -> None:
        """Blocks that were put and will not be published."""
        with self._books.alone(), self._books.transaction(durable=False):
            for block in blocks:
                self._books.run("DELETE FROM holds WHERE hash = ? AND holder = ?", block, self._holder)

    def lease(self, job: int, owner: str, epoch: int) -> None:
        """Make ``owner`` the one who writes a job's state.

        Raises
        ------
        FencedError
            If somebody holds it under a later epoch.
        """
        with self._books.alone(), self._books.transaction():
            self._fence(job, epoch)
            self._books.run("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", job, owner, epoch)

    def publish(
        self, job: int, version: int, blocks: Sequence[BlockId], epoch: int, *, meta: str = "", keep: int = 1
    ) -> None:
        """Make a version visible, all of it at once; earlier ones but ``keep`` - 1 and those pinned go.

        Their readers are told first. Publishing the same again does nothing.

        Raises
        ------
        FencedError
            The epoch is older than that of the job's lease.
        ConflictError
            There is this version with other content, or a later one.
        StateError
            A block is not there.
        """
        books = self._books
        with books.alone(), books.transaction():
            self._fence(job, epoch)
            newest = books.one("SELECT max(version) FROM versions WHERE job = ?", job)
            if newest is not None and version <= newest:
                if version == newest and self._content(job, version) == (meta, list(blocks)):
                    return
                raise ConflictError(f"state of job {job}: version {version} after version {newest}")
            self._need(blocks)
            books.run("UPDATE readers SET valid = 0 WHERE job = ?", job)
            books.run("INSERT INTO versions VALUES (?, ?, ?, ?)", job, version, epoch, meta)
            for place, block in enumerate(blocks):
                books.run("INSERT INTO parts VALUES (?, ?, ?, ?)", job, version, place, block)
                books.run("DELETE FROM holds WHERE hash = ? AND holder = ?", block, self._holder)
            books.run(
                "INSERT INTO leases VALUES (?, '', ?) ON CONFLICT(job) DO UPDATE SET epoch = excluded.epoch",
                job,
                epoch,
            )
            old = "job = ? AND version <= ? - ? AND version NOT IN (SELECT version FROM pins WHERE job = ?)"
            for table in ("parts", "versions"):
                books.run(f"DELETE FROM {table} WHERE {old}", job, version, keep, job)  # noqa: S608

    def _fence(self, job: int, epoch: int) -> None:
        holds = self._books.one("SELECT epoch FROM leases WHERE job = ?", job)
        if holds is not None and epoch < holds:
            raise FencedError(f"state of job {job}: epoch {epoch} is over, epoch {holds} writes it")

    def _need(self, blocks: Sequence[BlockId]) -> None:
        for block in blocks:
            size = self._books.one("SELECT size FROM blocks WHERE hash = ?", block)
            tiers = self._books.rows("SELECT tier FROM copies WHERE hash = ?", block)
            if not any(name in self._folders and self._folders[name].has(block, size) for (name,) in tiers):
                raise StateError(f"block {block[:16]}... is not there; put it before it is published")

    # -- reading ---------------------------------------------------------------------

    def newest(self, job: int) -> int | None:
        """Number of the newest version of a job's state."""
        found = self._books.one("SELECT max(version) FROM versions WHERE job = ?", job)
        return None if found is None else int(found)

    def open(self, job: int, version: int | None = None) -> Reader:
        """Open a version, by default the newest.

        Raises
        ------
        NotFoundError
        """
        books = self._books
        with books.alone(), books.transaction(durable=False):
            number = self.newest(job) if version is None else version
            if books.one("SELECT 1 FROM versions WHERE job = ? AND version = ?", job, number) is None:
                which = "" if version is None else f" of version {version}"
                raise NotFoundError(f"no saved state{which} of job {job}")
            cursor = books.run(
                "INSERT INTO readers (job, version, holder) VALUES (?, ?, ?)", job, number, self._holder
            )
        return Reader(self, int(cursor.lastrowid or 0), job, int(number or 0))

    def _content(self, job: int, version: int) -> tuple[str, list[BlockId]]:
        meta = self._books.one("SELECT meta FROM versions WHERE job = ? AND version = ?", job, version)
        query = "SELECT hash FROM parts WHERE job = ? AND version = ? ORDER BY place"
        return meta, [block for (block,) in self._books.rows(query, job, version)]

    def _valid(self, number: int) -> bool:
        return bool(self._books.one("SELECT valid FROM readers WHERE id = ?", number))

    def _close_reader(self, number: int, used: Iterable[tuple[BlockId, str]]) -> None:
        with self._books.alone(), self._books.transaction(durable=False):
            self._books.run("DELETE FROM readers WHERE id = ?", number)
            now = self._books.tick()
            for block, tier in used:
                self._books.run("UPDATE copies SET used = ? WHERE hash = ? AND tier = ?", now, block, tier)

    def _read(self, block: BlockId) -> tuple[bytes, str]:
        """A block and its tier, the fastest that has it whole; copies that are not whole are given up."""
        problem = StateError(f"block {block[:16]}... is in no tier")
        for tier in self.tiers:
            if self._books.one("SELECT 1 FROM copies WHERE hash = ? AND tier = ?", block, tier.name) is None:
                continue
            try:
                return self._folders[tier.name].read(block), tier.name
            except StateError as error:
                problem = error
                with self._books.alone():
                    self._room.discard(tier.name, [block])
        raise problem

    # -- keeping ---------------------------------------------------------------------

    def pin(self, job: int, version: int) -> None:
        """Keep a version, its blocks where they are, until ``unpin``.

        Raises
        ------
        NotFoundError
        """
        with self._books.alone(), self._books.transaction():
            if self._books.one("SELECT 1 FROM versions WHERE job = ? AND version = ?", job, version) is None:
                raise NotFoundError(f"no saved state of version {version} of job {job}")
            self._books.run("INSERT OR IGNORE INTO pins VALUES (?, ?)", job, version)

    def unpin(self, job: int, version: int) -> None:
        """Take a pin away."""
        with self._books.alone(), self._books.transaction():
            self._books.run("DELETE FROM pins WHERE job = ? AND version = ?", job, version)

    def drop(self, job: int) -> None:
        """A job's state is not needed any more; blocks that nobody else refers to may be evicted."""
        with self._books.alone(), self._books.transaction():
            for table in ("parts", "versions", "pins"):
                self._books.run(f"DELETE FROM {table} WHERE job = ?", job)  # noqa: S608
            self._books.run("UPDATE readers SET valid = 0 WHERE job = ?", job)

    def evict(self, tier: str, room_bytes: int) -> None:
        """Make room in a tier: what nobody needs goes, least recently used first, then what a later tier has or takes.

        Raises
        ------
        StoreError
            If so much cannot be freed.
        """
        with self._books.alone():
            self._room.make(tier, room_bytes)

    def resize(self, tier: str, limit_bytes: int | None) -> None:
        """Change a tier's limit; shrinking evicts first, and is refused if what is needed does not fit.

        Raises
        ------
        StoreError
        """
        with self._books.alone():
            old = self._room.limits[tier]
            self._room.limits[tier] = limit_bytes
            try:
                self._room.make(tier, 0)
            except StoreError:
                self._room.limits[tier] = old
                raise

    def free_bytes(self, tier: str) -> float:
        """Room in a tier, counting what may be evicted from it without loss."""
        return self._room.free(tier)

    def stats(self) -> Stats:
        """What there is."""
        return count(self._books, self._room)

    def _recover(self) -> None:
        """Forget processes that died, files of theirs, and copies that a restart of the machine took."""
        books = self._books
        held = books.rows("SELECT holder FROM holds UNION SELECT holder FROM readers")
        dead = [name for (name,) in held if not holder_lives(name)]
        with books.transaction():
            for name in dead:
                books.run("DELETE FROM holds WHERE holder = ?", name)
                books.run("DELETE FROM readers WHERE holder = ?", name)
        for tier in self.tiers:
            folder = self._folders[tier.name]
            folder.clean()
            known = {block for (block,) in books.rows("SELECT hash FROM copies WHERE tier = ?", tier.name)}
            there = set(folder.list())
            for block in sorted(there - known):
                folder.remove(block)
            self._room.discard(tier.name, sorted(known - there))

    def books_of(self) -> tuple[Books, dict[str, BlockFolder]]:
        """Books and folders, for ``fsck``."""
        return self._books, self._folders

    def close(self) -> None:
        """Let go of what this process held."""
        with self._books.alone(), self._books.transaction():
            for table in ("holds", "readers"):
                self._books.run(f"DELETE FROM {table} WHERE holder = ?", self._holder)  # noqa: S608
        self._books.close()

    def __enter__(self) -> StateRegistry:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
