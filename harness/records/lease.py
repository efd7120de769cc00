"""A lease on a cell's folder: at most one process on any machine runs the cell.

The lease is the file ``.lease``, which names its holder. On one machine, a lock on that file decides; the
operating system releases it when the holder ends for any reason. Between machines, where locks may not work,
the file's modification time decides: the holder updates it every :data:`BEAT_SECONDS`, and if it has not
changed for :data:`STALE_SECONDS` on the reader's clock, the holder is considered dead. Clocks of different
machines are never compared.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import stat
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

LEASE = ".lease"
BEAT_SECONDS = 10.0
STALE_SECONDS = 60.0
_PLAIN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lease: host, process id of the sweep, and start time (UTC)."""

    host: str
    pid: int
    since: str

    def __str__(self) -> str:
        return f"{self.host}, process {self.pid}, since {self.since}"


@dataclass(slots=True)
class Lease:
    """A lease held by this process. Not thread-safe."""

    path: Path
    _file: int
    _beat: float

    def renew(self) -> None:
        """Update the file's time if :data:`BEAT_SECONDS` have passed; cheap to call often."""
        now = time.monotonic()
        if now - self._beat >= BEAT_SECONDS:
            self._beat = now
            with contextlib.suppress(OSError):  # a full or read-only disk must not fail the cell
                os.utime(self._file)

    def release(self) -> None:
        """Release the lease and delete its file."""
        if self._file < 0:
            return
        with contextlib.suppress(OSError):
            if _is_file_at(self._file, self.path):
                self.path.unlink()
        os.close(self._file)
        self._file = -1


@dataclass(slots=True)
class Leases:
    """Takes leases, and tracks the heartbeats of leases held by other machines.

    Attributes:
        host: this machine's name in the leases.
        stale: seconds without a heartbeat after which a lease of another machine is taken over.
    """

    host: str = ""
    stale: float = STALE_SECONDS
    _seen: dict[str, tuple[int, float]] | None = None

    def __post_init__(self) -> None:
        self.host = self.host or socket.gethostname()
        self._seen = {}

    def take(self, folder: Path) -> Lease | None:
        """Take the lease on ``folder``, which is created if missing; None if another process holds it.

        Raises:
            OSError: the folder or the file cannot be created.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / LEASE
        for _ in range(10):
            file = _open(path)
            if not _locked(file, shared=False):
                os.close(file)
                return None
            if _is_file_at(file, path):
                break
            os.close(file)  # the previous holder deleted it between opening and locking
        else:
            return None
        if self._alive_elsewhere(path, file):
            os.close(file)
            return None
        self._write(file)
        return Lease(path, file, time.monotonic())

    def _alive_elsewhere(self, path: Path, file: int) -> bool:
        """Whether another machine holds it and has renewed it in the last :attr:`stale` seconds."""
        assert self._seen is not None
        holder = _read(file)
        if holder is None or holder.host == self.host:
            return False
        beat, now = os.fstat(file).st_mtime_ns, time.monotonic()
        last = self._seen.get(str(path))
        if last is None or last[0] != beat:
            self._seen[str(path)] = (beat, now)
            return True
        return now - last[1] < self.stale

    def _write(self, file: int) -> None:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        content = json.dumps({"host": self.host, "pid": os.getpid(), "since": since})
        with contextlib.suppress(OSError):  # on a full disk only the lock protects the cell
            os.ftruncate(file, 0)
            os.pwrite(file, content.encode(), 0)


def holder(folder: Path) -> Holder | None:
    """Return the current holder of the lease on ``folder``, if any.

    A lease of another machine counts while it is younger than two minutes by this machine's clock, since a
    single look cannot wait for a heartbeat.
    """
    try:
        file = os.open(folder / LEASE, os.O_RDONLY | _PLAIN)
    except OSError:
        return None
    try:
        owner = _read(file)
        if not _locked(file, shared=True):
            return owner or Holder("this machine", 0, "an unknown time")
        young = time.time() - os.fstat(file).st_mtime < 2 * STALE_SECONDS
        return owner if owner is not None and owner.host != socket.gethostname() and young else None
    finally:
        os.close(file)


def _open(path: Path) -> int:
    """Open or create the file of a lease for writing.

    Raises:
        OSError: it cannot be opened, or is a link or not a regular file.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | _PLAIN, 0o666)
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(file)
        raise OSError(errno.EINVAL, "not a regular file of its own; remove it", str(path))
    return file


def _locked(file: int, *, shared: bool) -> bool:
    """Lock an open file without waiting; on a file system without locks, always True."""
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
        current, opened = path.stat(), os.fstat(file)
    except OSError:
        return False
    return (current.st_dev, current.st_ino) == (opened.st_dev, opened.st_ino)


def _read(file: int) -> Holder | None:
    try:
        data = json.loads(os.pread(file, 4096, 0))
        return Holder(str(data["host"]), int(data["pid"]), str(data["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
