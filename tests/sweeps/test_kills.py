"""Killing processes of a sweep at random times does not change the final records."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.records.predictions import read_predictions
from harness.records.record import read_record

KILLS = int(os.environ.get("HARNESS_KILLS", "30"))
GRID = (
    "task=mini_topic", "encoder=mini_static,mini_elmo,mini_ulmfit,mini_bert,mini_gpt",
    "strategy=frozen,embedding_init", "seed=0,1,2,3", "limit=32",
    "trainer.epochs=1", "trainer.threads=1", "hydra.launcher.slots=2",
)  # fmt: skip
CELLS = 40
pytestmark = pytest.mark.long


def start(results: Path) -> subprocess.Popen[bytes]:
    places = [f"results_dir={results}", f"cache_dir={results.parent / (results.name + '-cache')}"]
    command = [sys.executable, "-P", "-m", "harness", "-m", *GRID, *places]
    (temporary := results.parent / "t").mkdir(exist_ok=True)
    with (results.parent / f"{results.name}.log").open("ab") as log:
        environment = {**os.environ, "TMPDIR": str(temporary)}
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)


def records(results: Path) -> list[Path]:
    return sorted(p.parent for p in results.glob("*/*/*/*/seed-*/record.json"))


def outcome(folder: Path) -> dict[str, Any]:
    record = read_record(folder)
    rows = {split: read_predictions(folder, split=split) for split in ("dev", "test")}
    return {"status": record.status, "dev": record.dev, "test": record.test, "epoch": record.epoch, **rows}


def test_a_server_killed_while_it_preloads_is_started_again(tmp_path: Path) -> None:
    """Four kills at random times of the two to six seconds in which it imports torch and transformers."""
    draw = random.Random(3)
    launcher = psutil.Process((process := start(tmp_path / "results")).pid)
    for _ in range(4):
        limit = time.monotonic() + 60
        while not (servers := launcher.children()) and time.monotonic() < limit:
            time.sleep(0.02)
        time.sleep(draw.uniform(0.0, 2.0))
        for server in servers:
            server.kill()
        time.sleep(0.1)
    assert process.wait(300) == 0
    folders = records(tmp_path / "results")
    assert [read_record(f).status for f in folders] == ["complete"] * CELLS


def victim(launcher: psutil.Process, draw: random.Random) -> psutil.Process:
    """The launcher, the server its cells are forked from, or a cell."""
    below = launcher.children(recursive=True)
    cells = [p for p in below if p.ppid() != launcher.pid]
    kind = draw.choice(["launcher", "launcher", "cell", "cell", "server"])
    if kind == "cell" and cells:
        return draw.choice(cells)
    servers = [p for p in below if p.ppid() == launcher.pid and p.children()]
    return draw.choice(servers) if kind == "server" and servers else launcher


def gone(processes: list[psutil.Process], seconds: float = 60.0) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return not [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def strike(process: subprocess.Popen[bytes], draw: random.Random) -> bool:
    """Kill a process of a running sweep; False if the sweep had already ended."""
    time.sleep(draw.uniform(1.0, 16.0))
    try:
        launcher = psutil.Process(process.pid)
        family = [launcher, *launcher.children(recursive=True)]
        target = victim(launcher, draw)
        target.kill()
    except psutil.Error:
        return False
    if target.pid == launcher.pid:
        process.wait(timeout=20)
        assert gone(family), "a process outlived the launcher"
    return process.poll() is None or target.pid == launcher.pid


@pytest.mark.timeout(3600)
def test_a_sweep_killed_many_times_ends_with_the_same_records(tmp_path: Path) -> None:
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    shared = set(os.listdir("/dev/shm"))
    assert start(undisturbed).wait(timeout=600) == 0
    draw = random.Random(7)
    kills, starts, begun = 0, 0, time.monotonic()
    while kills < KILLS:
        if starts and len(records(killed)) == CELLS:
            # complete before enough kills: remove some records
            for folder in draw.sample(records(killed), 20):
                (folder / "record.json").unlink()
        process = start(killed)
        starts += 1
        while process.poll() is None and kills < KILLS:
            kills += strike(process, draw)
        process.wait(timeout=600)
    for _ in range(3):  # killed cells have failed; the same command runs them again
        code = start(killed).wait(timeout=600)
        if code == 0:
            break
    assert code == 0
    print(f"{kills} kills in {starts} starts, {time.monotonic() - begun:.0f} s")
    names = [f.relative_to(undisturbed) for f in records(undisturbed)]
    assert len(names) == CELLS
    assert [f.relative_to(killed) for f in records(killed)] == names
    for name in names:
        assert outcome(killed / name) == outcome(undisturbed / name), name
    left = [p for p in killed.rglob("*") if p.name.startswith(".tmp") or p.name == ".lease"]
    assert left == []
    cache = tmp_path / "killed-cache"
    assert [p for p in cache.rglob("*") if p.name.startswith(".tmp")] == []
    assert set(os.listdir("/dev/shm")) <= shared
    kept = {p.name for p in (tmp_path / "t").iterdir()}
    assert {n for n in kept if not n.startswith("torchinductor_")} == set()  # a cache of torch
    left_running = [
        p for p in psutil.process_iter(["cmdline"]) if str(killed) in " ".join(p.info["cmdline"] or [])
    ]
    assert left_running == []


@pytest.mark.timeout(1800)
def test_memory_of_launcher_and_server_stays_flat(tmp_path: Path) -> None:
    """In a sweep of 300 cells, memory at the end is at most 5 % above that after 50 cells."""
    results = tmp_path / "results"
    command = [
        sys.executable, "-P", "-m", "harness", "-m", "task=mini_topic", "encoder=mini_static",
        "strategy=embedding_init", f"seed={','.join(map(str, range(300)))}", "limit=16", "trainer.epochs=1",
        "trainer.threads=1", f"results_dir={results}", f"cache_dir={tmp_path / 'cache'}",
    ]  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    seen: dict[int, float] = {}
    while process.poll() is None:
        time.sleep(0.5)
        try:
            launcher = psutil.Process(process.pid)
            fixed = [launcher, *launcher.children()]  # server and resource tracker, but not the cells
            seen[len(records(results))] = sum(p.memory_info().rss for p in fixed)
        except psutil.Error:
            continue
    assert process.returncode == 0
    assert len(records(results)) == 300
    early = [m for n, m in seen.items() if 40 <= n <= 60]
    late = [m for n, m in seen.items() if 280 <= n < 300]
    print(json.dumps({"early_mb": max(early) / 1e6, "late_mb": max(late) / 1e6}))
    assert max(late) <= 1.05 * max(early)
