"""Sweeps on a full disk, with full shared memory, and with truncated files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.records.record import read_record
from tests.helpers.paths import ROOT

pytestmark = pytest.mark.long
CELLS = (
    "task=mini_topic",
    "encoder=mini_static",
    "strategy=embedding_init",
    "seed=0,1,2,3,4,5,6,7,8,9,10,11",
)
QUICK = ("limit=16", "trainer.epochs=1", "trainer.threads=1")


def harness(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "harness", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=400)


def records(results: Path) -> dict[str, str]:
    return {
        str(p.parent.relative_to(results)): json.loads(p.read_text())["status"]
        for p in results.glob("*/*/*/*/seed-*/record.json")
    }


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 160 kB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_fills_up_fails_only_the_cells_without_space(small: Path, tmp_path: Path) -> None:
    places = (f"results_dir={small / 'r'}", f"cache_dir={tmp_path / 'cache'}")
    done = harness("-m", *CELLS, *QUICK, *places, cwd=tmp_path)
    assert done.returncode == 1
    found = records(small / "r")
    assert 0 < list(found.values()).count("complete") < 12
    assert "no space left" in done.stderr.lower()
    assert "Traceback" not in done.stdout
    subprocess.run(["mount", "-o", "remount,size=4m", str(small)], check=True)
    again = harness("-m", *CELLS, *QUICK, *places, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert list(records(small / "r").values()) == ["complete"] * 12
    assert not [p for p in (small / "r").rglob("*") if p.name.startswith(".tmp") or p.name == ".lease"]


FULL = 'mount -t tmpfs -o size=4k tmpfs /dev/shm && (cat /dev/zero > /dev/shm/full 2> /dev/null; exec "$@")'
"""Runs a command in a mount namespace of its own in which shared memory is full."""


@pytest.mark.parametrize("more", [(), ("trainer.devices=2", "trainer.accelerator=cpu"), ("logger=wandb",)])
def test_full_shared_memory_does_not_matter(more: tuple[str, ...], tmp_path: Path) -> None:
    """Neither cells nor their ranks communicate through shared memory."""
    inside = ["unshare", "--mount", "sh", "-c", FULL, "sh"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    whole = subprocess.run([*inside, "sh", "-c", "echo x > /dev/shm/x"], capture_output=True, check=False)
    assert whole.returncode, "it is not full"
    grid = ("task=mini_topic", "encoder=mini_static,mini_bert", "strategy=frozen,embedding_init", *QUICK)
    command = [*inside, sys.executable, "-P", "-m", "harness", "-m", *grid, *more, "results_dir=r"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert list(records(tmp_path / "r").values()) == ["complete"] * 4


def test_a_truncated_record_and_a_truncated_checkpoint(tmp_path: Path) -> None:
    """The record is set aside and its cell runs again; the checkpoint fails only the cells that use it."""
    from tests.helpers.tiny_transformers import make_checkpoint

    whole, cut = make_checkpoint(tmp_path / "whole"), make_checkpoint(tmp_path / "cut")
    weights = cut / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    conf = tmp_path / "conf" / "encoder"
    conf.mkdir(parents=True)
    for name, folder in (("whole", whole), ("cut", cut)):
        (conf / f"{name}.yaml").write_text(f"defaults: [bert]\nname: {name}\npath: {folder}\n")
    command = (
        "-m", "--config-dir", str(conf.parent), "task=mini_topic", "encoder=cut,whole", "strategy=full",
        "cache_dir=cache", *QUICK,
    )  # fmt: skip
    done = harness(*command, cwd=tmp_path)
    assert done.returncode == 1
    assert "cut: the weights cannot be read" in done.stderr
    found = records(tmp_path / "results")
    assert sorted(found.values()) == ["complete", "failed"]
    (record,) = [tmp_path / "results" / f / "record.json" for f, s in found.items() if s == "complete"]
    before = read_record(record.parent)
    record.write_bytes(record.read_bytes()[:100])
    make_checkpoint(tmp_path / "repaired")
    os.replace(tmp_path / "repaired" / "model.safetensors", weights)
    assert harness(*command, cwd=tmp_path).returncode == 0
    assert read_record(record.parent).test == before.test
    assert list(record.parent.glob("record.json.damaged-*"))


@pytest.mark.timeout(1200)
def test_the_overhead_per_cell_is_small(tmp_path: Path) -> None:
    """A thousand trivial cells in the pool take at most 0.2 s each."""
    code = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.helpers.cell_runners import make_cell
from harness.sweeps.pool import LocalPool
from harness.sweeps.progress import PlainDisplay, SweepCounts
from harness.processes.slots import DeviceSlot
if __name__ == "__main__":
    folder = Path(sys.argv[2])
    options = dict(display=PlainDisplay(SweepCounts(total=1000)), runner="tests.helpers.cell_runners:act")
    options["preload"] = ("tests.helpers.cell_runners",)
    LocalPool(slots=[DeviceSlot(None, 1)] * 2, **options).run([make_cell(folder, "warm")])
    begun = time.monotonic()
    cells = [make_cell(folder, f"c{n}") for n in range(1000)]
    done = LocalPool(slots=[DeviceSlot(None, 1)] * 2, **options).run(cells)
    print(len(done), (time.monotonic() - begun) / 1000)
"""
    script = tmp_path / "many.py"
    script.write_text(code)
    command = [sys.executable, str(script), str(ROOT), str(tmp_path / "results")]
    out = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True).stdout.split()
    print(f"{float(out[-1]):.3f} s per cell")
    assert out[-2] == "1000"
    assert float(out[-1]) <= 0.2
