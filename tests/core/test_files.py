"""Atomic writes: readers see the old file or the complete new one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.core.files import atomic_path, create_new, remove_outward_links, write_atomic


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


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_files_have_the_permissions_that_the_umask_leaves(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        write_atomic(tmp_path / "data.bin", b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "data.bin").stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_link_is_replaced_by_an_atomic_write_and_refused_for_a_new_file(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(FileExistsError):
        create_new(tmp_path / "link")
    write_atomic(tmp_path / "link", b"new")
    assert (tmp_path / "outside").read_text() == "kept"
    assert not (tmp_path / "link").is_symlink()


def test_only_links_that_lead_out_of_a_folder_are_removed(tmp_path: Path) -> None:
    (tmp_path / "cell" / "logs").mkdir(parents=True)
    (tmp_path / "cell" / "latest").symlink_to("logs")
    (tmp_path / "cell" / "logs" / "out").symlink_to(tmp_path)
    remove_outward_links(tmp_path / "cell")
    assert [p.name for p in sorted((tmp_path / "cell").rglob("*"))] == ["latest", "logs"]
