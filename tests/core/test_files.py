"""Atomic writes: readers see the old file or the complete new one."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.files import atomic_path, write_atomic


def _fail_halfway(path: Path) -> None:
    with atomic_path(path) as temporary:
        temporary.write_bytes(b"ne")
        raise RuntimeError("disk")


def test_failed_write_keeps_the_old_file_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "data.bin"
    write_atomic(path, b"old")
    with pytest.raises(RuntimeError, match="disk"):
        _fail_halfway(path)
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def test_file_appears_under_its_name_at_the_end_of_the_block(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    with atomic_path(path) as temporary:
        temporary.write_bytes(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [path]
