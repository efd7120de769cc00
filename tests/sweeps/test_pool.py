"""Isolation of cells in worker processes: limits, signals, kills, devices and leases."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.errors import HarnessError
from harness.processes import slots
from harness.processes.forkserver import discard_server, kill_server
from harness.processes.slots import DeviceSlot, make_slots
from harness.processes.worker import log_text
from harness.records.cell import Cell
from harness.records.lease import LEASE, Leases
from harness.records.lifecycle import failure
from harness.records.record import LOG, Record, read_record
from harness.sweeps.pool import LocalPool
from harness.sweeps.progress import failure_lines
from tests.helpers import cell_runners
from tests.helpers.cell_runners import make_cell
from tests.helpers.paths import PYTHONPATH, ROOT

HELPERS = ROOT / "tests" / "helpers"


class RecordingDisplay:
    """A display that stores what it is notified of."""

    def __init__(self) -> None:
        self.finished_cells: list[tuple[str, str | None]] = []
        self.events: list[dict[str, Any]] = []
        self.notes: list[str] = []

    def started(self, cell: Cell, slot: DeviceSlot) -> None:
        pass

    def event(self, cell: Cell, event: dict[str, Any]) -> None:
        self.events.append(event)

    def finished(self, cell: Cell, record: Record | None) -> None:
        self.finished_cells.append((cell.id, record.status if record else None))

    def note(self, text: str) -> None:
        self.notes.append(text)

    def tick(self) -> None:
        pass


def run_pool(cells: list[Cell], n: int = 2, **options: Any) -> tuple[dict[str, Record], RecordingDisplay]:
    display = RecordingDisplay()
    slots = [DeviceSlot(None, 1) for _ in range(n)]
    pool = LocalPool(
        slots=slots,
        display=display,
        runner="tests.helpers.cell_runners:act",
        **{"preload": ("tests.helpers.cell_runners",), **options},
    )
    return {r.cell: r for r in pool.run(cells).values()}, display


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition: Any, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.02)


def test_a_failing_cell_fails_alone_and_has_its_own_log(tmp_path: Path) -> None:
    acts = {"A": "ok", "B": "raise", "C": "ok", "D": "raise"}
    records, display = run_pool([make_cell(tmp_path, n, act=a) for n, a in acts.items()])
    assert {n: r.status for n, r in records.items()} == {
        "A": "complete", "B": "failed", "C": "complete", "D": "failed",
    }  # fmt: skip
    for name in "BD":
        folder = make_cell(tmp_path, name).folder
        log = (folder / "log.txt").read_text()
        assert f"ValueError: boom-{name}" in log
        assert "Traceback" in log
        assert f"boom-{name}" in read_record(folder).reason
        assert (folder / "config.yaml").exists()
    assert len(display.finished_cells) == 4
    assert display.events[0]["phase"] == "train"


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        ("segfault", "SIGSEGV: segmentation fault"),
        ("killed", "SIGKILL: killed (out of memory?)"),
        ("exit", "exit code 7"),
        ("silent", "ended without a record"),
        ("bad", "data.tsv, line 3: no label; give it one"),
    ],
)
def test_a_dead_worker_leaves_a_failed_record_with_the_cause(tmp_path: Path, act: str, reason: str) -> None:
    records, _ = run_pool([make_cell(tmp_path, "x", act=act), make_cell(tmp_path, "y")], n=1)
    assert records["x"].status == "failed"
    assert reason in records["x"].reason
    assert records["y"].status == "complete"
    assert "running x" in (make_cell(tmp_path, "x").folder / "log.txt").read_text()


def test_partially_written_files_are_removed(tmp_path: Path) -> None:
    """After a worker was killed; and, if the launcher was killed too, before the cell runs again."""
    cell = make_cell(tmp_path, "x", act="half")
    records, _ = run_pool([cell], n=1)
    assert "SIGKILL" in records["x"].reason
    assert sorted(p.name for p in cell.folder.iterdir()) == [
        "config.json", "config.yaml", "log.txt", "record.json",
    ]  # fmt: skip
    (cell.folder / ".tmp-abc").write_text("see")
    run_pool([make_cell(tmp_path, "x", act="ok")], n=1)
    assert not (cell.folder / ".tmp-abc").exists()
    assert read_record(cell.folder).status == "complete"


def test_a_timeout_also_kills_the_data_workers_of_a_cell(tmp_path: Path) -> None:
    cell = make_cell(tmp_path, "slow", act="workers", timeout=1.0)
    begun = time.monotonic()
    records, _ = run_pool([cell])
    assert records["slow"].status == "timeout"
    assert "timeout=1.0" in records["slow"].reason
    assert time.monotonic() - begun < 15
    wait_for(lambda: not alive(int((cell.folder / "worker").read_text())))


def test_fail_fast_starts_no_further_cell(tmp_path: Path) -> None:
    cells = [make_cell(tmp_path, n, act=a) for n, a in (("a", "raise"), ("b", "ok"), ("c", "ok"))]
    records, _ = run_pool(cells, n=1, fail_fast=True)
    assert list(records) == ["a"]


def test_devices_and_threads_are_set_in_the_worker_only(tmp_path: Path) -> None:
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    cells = [make_cell(tmp_path, n, act="environment") for n in ("a", "b")]
    pool = LocalPool(
        slots=[DeviceSlot("3", 2)],
        display=RecordingDisplay(),
        runner="tests.helpers.cell_runners:act",
        preload=("tests.helpers.cell_runners",),
    )
    pool.run([cells[0], make_cell(tmp_path, "b", act="environment", trainer={"threads": 4})])
    # the slot has two threads: arithmetic does not depend on it
    assert (cells[0].folder / "environment").read_text() == "['3', '1']"
    assert (cells[1].folder / "environment").read_text() == "['3', '4']"
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == before
    # nothing can be imported from the current directory
    assert "" not in (cells[0].folder / "path").read_text().split("\n")


def test_a_cell_run_by_another_sweep_is_deferred(tmp_path: Path) -> None:
    first, second = make_cell(tmp_path, "a"), make_cell(tmp_path, "b")
    first.folder.mkdir(parents=True)
    lease = Leases().take(first.folder)
    assert lease is not None
    threading.Timer(0.6, lease.release).start()
    records, display = run_pool([first, second], n=1)
    assert [c for c, _ in display.finished_cells] == ["b", "a"]
    assert len(records) == 2
    assert "another sweep" in display.notes[0]


def test_a_cell_completed_by_another_sweep_is_not_run_again(tmp_path: Path) -> None:
    cell = make_cell(tmp_path, "a")
    run_pool([cell])
    run_pool([cell])
    assert (tmp_path / "runs").read_text().split("\n") == ["a 0", ""]


def _interrupt(pool_pid: int, sent: list[signal.Signals], when: Path) -> None:
    wait_for(when.exists)
    for number in sent:
        os.kill(pool_pid, number)
        time.sleep(0.3)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ([signal.SIGINT], "complete"),
        ([signal.SIGINT, signal.SIGINT], None),
        ([signal.SIGTERM], None),
        ([signal.SIGHUP], None),
    ],
    ids=["ctrl_c", "twice", "term", "hup"],
)
def test_first_ctrl_c_waits_for_running_cells_and_second_kills_them(
    tmp_path: Path, sent: list[signal.Signals], status: str | None
) -> None:
    display = RecordingDisplay()
    under_nohup = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    before = signal.getsignal(signal.SIGINT)  # ignored if the tests run in the background of a shell
    seconds = 1.5 if status else 30
    cells = [make_cell(tmp_path, "a", act=f"sleep:{seconds}"), make_cell(tmp_path, "b")]
    pool = LocalPool(
        slots=[DeviceSlot(None, 1)],
        display=display,
        runner="tests.helpers.cell_runners:act",
        preload=("tests.helpers.cell_runners",),
    )
    thread = threading.Thread(target=_interrupt, args=(os.getpid(), sent, tmp_path / "runs"))
    thread.start()
    begun = time.monotonic()
    records = pool.run(cells)
    thread.join()
    assert time.monotonic() - begun < 15
    signal.signal(signal.SIGHUP, under_nohup)
    assert pool.interrupts == (1 if status else 2)
    assert display.finished_cells == [("a", status)]
    assert [r.status for r in records.values()] == ([status] if status else [])
    if status is None:
        # no record is written, so the next sweep runs the cell
        assert not (cells[0].folder / "record.json").exists()
    assert signal.getsignal(signal.SIGINT) is before


def test_second_ctrl_c_kills_a_cell_that_is_being_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = LocalPool(
        slots=[DeviceSlot(None, 1)],
        display=RecordingDisplay(),
        runner="tests.helpers.cell_runners:act",
        preload=("tests.helpers.cell_runners",),
    )
    fork = pool._fork

    def interrupted(self: LocalPool, job: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        return fork(job)

    monkeypatch.setattr(LocalPool, "_fork", interrupted)
    begun = time.monotonic()
    assert pool.run([make_cell(tmp_path, "a", act="sleep:30"), make_cell(tmp_path, "b")]) == {}
    assert pool.interrupts == 2
    assert time.monotonic() - begun < 10


def test_killing_the_driver_kills_its_workers_and_removes_sockets(tmp_path: Path) -> None:
    script = f"""
    import sys
    sys.path.insert(0, {str(ROOT)!r})
    from pathlib import Path
    from tests.helpers.cell_runners import make_cell
    from harness.sweeps.pool import LocalPool
    from harness.sweeps.progress import PlainDisplay, SweepCounts
    from harness.processes.slots import DeviceSlot
    if __name__ == "__main__":
        cell = make_cell(Path({str(tmp_path)!r}), "a", act="workers")
        shown = PlainDisplay(SweepCounts(total=1))
        runner = "tests.helpers.cell_runners:act"
        pool = LocalPool(slots=[DeviceSlot(None, 1)], display=shown, runner=runner, preload=())
        pool.run([cell])
    """
    path = tmp_path / "driver.py"
    path.write_text(textwrap.dedent(script))
    # a short path: names of sockets may have 108 bytes at most
    sockets = Path(tempfile.mkdtemp())
    driver = subprocess.Popen([sys.executable, str(path)], env={**os.environ, "TMPDIR": str(sockets)})
    folder = make_cell(tmp_path, "a").folder
    wait_for((folder / "pid").exists, 20)
    pids = [int((folder / n).read_text()) for n in ("pid", "worker")]
    assert all(alive(p) for p in pids)
    assert list(sockets.glob("pymp-*/listener-*"))
    driver.kill()
    driver.wait()
    wait_for(lambda: not any(alive(p) for p in pids))
    wait_for(lambda: list(sockets.iterdir()) == [])
    sockets.rmdir()


def test_a_killed_fork_server_is_restarted(tmp_path: Path) -> None:
    from multiprocessing import forkserver

    run_pool([make_cell(tmp_path, "a")])
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)  # type: ignore[attr-defined]
    time.sleep(0.2)
    records, _ = run_pool([make_cell(tmp_path, "b")])
    assert records["b"].status == "complete"


@pytest.fixture
def slow_preload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Name of a module that a new server needs a second to import."""
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(1)\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), PYTHONPATH]))
    discard_server()
    yield "slow_to_import"
    discard_server()


def _after(seconds: float, action: Callable[[], None], *, times: int = 1) -> threading.Thread:
    def act() -> None:
        for _ in range(times):
            time.sleep(seconds)
            action()

    thread = threading.Thread(target=act)
    thread.start()
    return thread


def test_kills_of_a_server_that_is_preloading_do_not_end_the_sweep(tmp_path: Path, slow_preload: str) -> None:
    thread = _after(0.5, kill_server, times=3)
    records, _ = run_pool([make_cell(tmp_path, "a"), make_cell(tmp_path, "b")], preload=(slow_preload,))
    thread.join()
    assert [records[name].status for name in "ab"] == ["complete", "complete"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_server_is_preloading_ends_the_sweep_at_once(
    tmp_path: Path, slow_preload: str, number: signal.Signals
) -> None:
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(30)\n")
    thread = _after(0.5, lambda: os.kill(os.getpid(), number))
    begun = time.monotonic()
    records, display = run_pool([make_cell(tmp_path, "a")], preload=(slow_preload,))
    thread.join()
    assert time.monotonic() - begun < 3
    assert (records, display.finished_cells) == ({}, [])
    assert not (tmp_path / "t" / "e" / "s" / "a" / "seed-0" / LEASE).exists()


def test_a_server_that_cannot_fork_is_an_error_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(self: LocalPool, spec: Any) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(LocalPool, "_fork_once", no_thread)
    with pytest.raises(HarnessError, match=r"cannot start a process for .*can't start new thread.*ulimit -u"):
        run_pool([make_cell(tmp_path, "a")])


def test_an_error_that_the_user_can_fix_is_one_line_without_a_traceback(tmp_path: Path) -> None:
    cell = make_cell(tmp_path, "a")
    cell.folder.mkdir(parents=True)
    record = failure(cell, status="failed", reason="diverged: lower optimizer.lr")
    for error, shown in ((HarnessError(record.reason), 3), (ValueError(record.reason), 4)):
        (cell.folder / LOG).write_text(f"a warning\n{log_text(error)}\n")
        assert len(failure_lines(cell, record).splitlines()) == shown
    assert log_text(HarnessError("label \x1b[2J")) == "harness: label \\x1b[2J"


def test_starting_a_worker_is_cheap(tmp_path: Path) -> None:
    run_pool([make_cell(tmp_path, "warm")])
    taken = []
    for n in range(10):
        begun = time.monotonic()
        run_pool([make_cell(tmp_path, f"c{n}")], n=1)
        taken.append(time.monotonic() - begun)
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    # measured 0.1 s (0.2 s with torch preloaded) against 1.5 s; both take longer on a busy machine
    assert min(taken) < (time.monotonic() - begun) / 2


@pytest.mark.parametrize(
    ("visible", "spec", "options", "expected"),
    [
        ("0,1", "auto", {}, ["0", "1"]),
        ("0,1", "auto", {"cells_per_device": 2}, ["0", "1", "0", "1"]),
        ("0,1", "auto", {"devices": 2}, ["0,1"]),
        ("0,1", "auto", {"accelerator": "cpu"}, [None]),
        ("", "auto", {"cells_per_device": 3}, [None]),
        ("-1", 2, {}, [None, None]),
        ("GPU-a,GPU-b", 3, {}, ["GPU-a", "GPU-b", "GPU-a"]),
        ("0", [0, "1,2"], {}, ["0", "1,2"]),
    ],
)
def test_slots(
    monkeypatch: pytest.MonkeyPatch, visible: str, spec: Any, options: dict[str, Any], expected: list[Any]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    made = make_slots(spec, **options)
    assert [s.devices for s in made] == expected
    assert all(s.threads >= 1 for s in made)


def test_slotsshare_the_cores_up_to_the_limit_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert slots.cpu_share(2) == 4
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert slots.cpu_share(2) == 3


@pytest.mark.parametrize("spec", ["many", 0, True, 1.5, []])
def test_invalid_slotsare_rejected(spec: Any) -> None:
    with pytest.raises(HarnessError, match="slots="):
        make_slots(spec)


def test_the_runner_module_is_importable() -> None:
    assert callable(cell_runners.act)


def test_a_cell_above_its_memory_limit_is_killed_with_a_reason(tmp_path: Path) -> None:
    cells = [make_cell(tmp_path, "a", act="fill:300", memory_gb=0.2), make_cell(tmp_path, "b", memory_gb=0.2)]
    records, _ = run_pool(cells)
    failed, fine = records["a"], records["b"]
    assert failed.status == "failed"
    assert "memory_gb=0.2" in failed.reason
    assert fine.status == "complete"


def test_a_complete_cell_is_archived_before_it_runs_again(tmp_path: Path) -> None:
    cell = make_cell(tmp_path, "a")
    run_pool([cell])
    before = (cell.folder / "record.json").read_bytes()
    run_pool([cell], force_rerun={str(cell.folder)})
    assert (tmp_path / "runs").read_text() == "a 0\na 0\n"
    kept = list((tmp_path / ".archive").glob("*/t/e/s/a/seed-0/record.json"))
    assert [k.read_bytes() for k in kept] == [before]
    assert (cell.folder / "record.json").exists()


def test_no_lease_files_remain(tmp_path: Path) -> None:
    run_pool([make_cell(tmp_path, act, act=act) for act in ("ok", "raise", "killed")])
    assert not list(tmp_path.rglob(LEASE))


def test_a_folder_that_cannot_be_created_fails_only_its_cell(tmp_path: Path) -> None:
    bad, good = make_cell(tmp_path, "a"), make_cell(tmp_path, "b")
    bad.folder.parent.mkdir(parents=True)
    bad.folder.write_text("in the way")
    records, _ = run_pool([bad, good])
    assert (records["a"].status, records["b"].status) == ("failed", "complete")
    assert str(bad.folder) in records["a"].reason


def test_warnings_are_printed_once_and_when_they_occur(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from harness.sweeps.progress import PlainDisplay, SweepCounts

    shown = PlainDisplay(SweepCounts(total=2))
    cells = [make_cell(tmp_path, n) for n in ("a", "b")]
    for cell in cells:
        shown.started(cell, DeviceSlot(None, 1))
        shown.event(cell, {"phase": "encode", "message": "warning: 90% unknown"})
        shown.event(cell, {"phase": "encode", "message": "computing features"})
    assert capsys.readouterr().err == f"warning: 90% unknown ({cells[0].title})\n"
    record = Record("complete", "t", "e", "s", "c", 0, warnings=["90% unknown", "diverging"])
    shown.finished(cells[0], record)
    assert f"warning: diverging ({cells[0].title})\n" in capsys.readouterr().err
