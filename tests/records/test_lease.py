"""Leases on cell folders, on one machine and between machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.records import lease as module
from harness.records.lease import LEASE, Leases, holder


def test_one_holder_at_a_time_and_no_files_left(tmp_path: Path) -> None:
    first = Leases().take(tmp_path / "a")
    assert first is not None
    assert Leases().take(tmp_path / "a") is None
    owner = holder(tmp_path / "a")
    assert owner is not None
    assert owner.pid == os.getpid()
    first.release()
    first.release()
    assert holder(tmp_path / "a") is None
    assert not list(tmp_path.rglob(LEASE))


def test_the_lease_of_a_dead_process_on_this_machine_is_taken_at_once(tmp_path: Path) -> None:
    code = "import os, pathlib, sys; from harness.records.lease import Leases;"
    code += "held = Leases().take(pathlib.Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert (tmp_path / LEASE).exists()
    assert holder(tmp_path) is None
    lease = Leases().take(tmp_path)
    assert lease is not None
    lease.release()


def of_another_machine(folder: Path) -> Path:
    path = folder / LEASE
    path.write_text(json.dumps({"host": "elsewhere", "pid": 1, "since": "2024-01-01T00:00:00+00:00"}))
    return path


def test_another_machines_lease_is_taken_over_without_heartbeats(tmp_path: Path) -> None:
    of_another_machine(tmp_path)
    leases = Leases(stale=0.2)
    assert leases.take(tmp_path) is None, "counts as alive until no heartbeat is seen"
    time.sleep(0.3)
    lease = leases.take(tmp_path)
    assert lease is not None
    assert json.loads((tmp_path / LEASE).read_text())["host"] == leases.host
    lease.release()


def test_another_machines_lease_with_heartbeats_is_respected_despite_clock_differences(
    tmp_path: Path,
) -> None:
    path = of_another_machine(tmp_path)
    leases = Leases(stale=0.2)
    for beat in range(3):
        os.utime(path, (beat, beat))  # decades ago by our clock
        assert leases.take(tmp_path) is None
        time.sleep(0.15)


def test_a_recent_lease_of_another_machine_counts_as_held(tmp_path: Path) -> None:
    path = of_another_machine(tmp_path)
    owner = holder(tmp_path)
    assert owner is not None
    assert owner.host == "elsewhere"
    os.utime(path, (1, 1))
    assert holder(tmp_path) is None


def test_a_lease_is_renewed_after_the_heartbeat_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Leases().take(tmp_path)
    assert lease is not None
    os.utime(tmp_path / LEASE, (1, 1))
    lease.renew()
    assert (tmp_path / LEASE).stat().st_mtime == 1
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.0)
    lease.renew()
    assert (tmp_path / LEASE).stat().st_mtime > 1
    lease.release()


def test_releasing_a_deleted_lease_does_not_delete_the_next_one(tmp_path: Path) -> None:
    first = Leases().take(tmp_path)
    assert first is not None
    (tmp_path / LEASE).unlink()
    second = Leases().take(tmp_path)
    assert second is not None
    first.release()
    assert (tmp_path / LEASE).exists()
    second.release()
