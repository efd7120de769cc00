"""A lease on a cell's folder: one process at a time runs the cell, whatever machine it is on.

The lease is the file ``.lease``, which says who holds it. On one machine the lock on that file decides, and
the system drops it when its holder dies, however it dies. Between machines, where such locks may not reach,
the file's time decides: a holder renews it every :data:`BEAT_SECONDS`, and one whose file has not changed for
:data:`STALE_SECONDS` of the reader's own clock is dead. Clocks of different machines are never compared.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

LEASE = ".lease"
BEAT_SECONDS = 10.0
STALE_SECONDS = 60.0
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease: the machine, the process of the sweep there, and since when (UTC)."""

    host: str
    pid: int
    since: str

    def __str__(self) -> str:
        return f"{self.host}, process {self.pid}, since {self.since}"


@dataclass(slots=True)
class Lease:
    """A lease that this process holds. Not for use by several threads."""

    path: Path
    _file: int
    _beat: float

    def renew(self) -> None:
        """Tell other machines that the holder lives; cheap, and does nothing before it is time."""
        now = time.monotonic()
        if now - self._beat >= BEAT_SECONDS:
            self._beat = now
            with contextlib.suppress(OSError):  # a full or read-only disk ends no cell
                os.utime(self._file)

    def release(self) -> None:
        """Give it back; the file goes."""
        if self._file < 0:
            return
        with contextlib.suppress(OSError):
            if _is_file_at(self._file, self.path):
                self.path.unlink()
        os.close(self._file)
        self._file = -1


@dataclass(slots=True)
class Leases:
    """Takes leases, and remembers what it saw of those that other machines hold.

    Attributes:
        host: this machine's name in the leases.
        stale: seconds without a sign of life after which a lease of another machine is taken over.
    """

    host: str = ""
    stale: float = STALE_SECONDS
    _seen: dict[str, tuple[int, float]] | None = None

    def __post_init__(self) -> None:
        self.host = self.host or socket.gethostname()
        self._seen = {}

    def take(self, folder: Path) -> Lease | None:
        """The lease on ``folder``, which is made if need be; None while someone else holds it.

        Raises:
            OSError: the folder or the file cannot be made.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / LEASE
        for _ in range(10):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if not _locked(file, shared=False):
                os.close(file)
                return None
            if _is_file_at(file, path):
                break
            os.close(file)  # its last holder removed it between opening and locking
        else:
            return None
        if self._alive_elsewhere(path, file):
            os.close(file)
            return None
        self._write(file)
        return Lease(path, file, time.monotonic())

    def _alive_elsewhere(self, path: Path, file: int) -> bool:
        """Whether another machine holds it and has shown life in the last :attr:`stale` seconds."""
        assert self._seen is not None
        holder = _read(file)
        if holder is None or holder.host == self.host:
            return False
        beat, now = os.fstat(file).st_mtime_ns, time.monotonic()
        known = self._seen.get(str(path))
        if known is None or known[0] != beat:
            self._seen[str(path)] = (beat, now)
            return True
        return now - known[1] < self.stale

    def _write(self, file: int) -> None:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        told = json.dumps({"host": self.host, "pid": os.getpid(), "since": since})
        with contextlib.suppress(OSError):  # on a full disk the lock alone must do
            os.ftruncate(file, 0)
            os.pwrite(file, told.encode(), 0)


def holder(folder: Path) -> Holder | None:
    """Who holds the lease on ``folder`` now; None when nobody does.

    Another machine is believed while its lease is younger than two minutes by the file system's clock: a look
    cannot wait for a heartbeat.
    """
    try:
        file = os.open(folder / LEASE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = _read(file)
        if not _locked(file, shared=True):
            return found or Holder("this machine", 0, "an unknown time")
        young = time.time() - os.fstat(file).st_mtime < 2 * STALE_SECONDS
        return found if found is not None and found.host != socket.gethostname() and young else None
    finally:
        os.close(file)


def _locked(file: int, *, shared: bool) -> bool:
    """Lock an open file without waiting; a file system without locks counts as locked by us."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as e:
        if e.errno not in _NO_LOCKS:
            raise
    return True


def _is_file_at(file: int, path: Path) -> bool:
    try:
        there, ours = path.stat(), os.fstat(file)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def _read(file: int) -> Holder | None:
    try:
        told = json.loads(os.pread(file, 4096, 0))
        return Holder(str(told["host"]), int(told["pid"]), str(told["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
