"""Compare cells on GPUs with the same cells on the CPU, and measure their cost.

    make gpu-check

Runs cells of the mini world on both through the command line, so that the warm server, the device slots and
CUDA in forked processes are used, and prints one JSON line per cell: scores, share of equal predictions,
seconds. With two GPUs or more it also runs cells over two of them, with DDP and with FSDP.
Fails when a cell fails on the GPU, or when a single-precision one disagrees with the CPU on more than 5 % of
the test examples.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.records.predictions import read_predictions
from harness.records.record import Record, iter_records

GRID = [
    "task=mini_topic,mini_ner,mini_qa",
    "encoder=mini_static,mini_bert,mini_gpt",
    "strategy=frozen,embedding_init,full",
    "trainer.epochs=3",
]
LEAST_EQUAL = 0.95
SEVERAL = ["encoder=mini_bert", "strategy=full", "trainer.devices=2"]
"""Overrides of the cells over two GPUs; a later override replaces the grid's."""


def sweep(folder: Path, *overrides: str) -> dict[str, tuple[Path, Record]]:
    """Run the grid into ``folder``.

    Returns:
        folder and record of each cell by ``task/encoder/strategy``.
    """
    places = [f"results_dir={folder / 'results'}", f"cache_dir={folder / 'cache'}"]
    replaced = {o.partition("=")[0] for o in overrides}
    grid = [o for o in GRID if o.partition("=")[0] not in replaced]
    command = [sys.executable, "-P", "-m", "harness", "-m", *grid, *places, *overrides]
    subprocess.run(command, check=False)
    found = {}
    for path, record in iter_records(folder / "results"):
        if isinstance(record, Record) and record.status != "skipped":
            found[f"{record.task}/{record.encoder}/{record.strategy}"] = (path, record)
    return found


def equal_share(one: Path, other: Path) -> float:
    """Share of test examples with the same prediction."""
    left = {r["id"]: r["prediction"] for r in read_predictions(one)}
    right = {r["id"]: r["prediction"] for r in read_predictions(other)}
    return sum(bool(left[i] == right[i]) for i in left) / len(left)


def compare(
    cpu: dict[str, tuple[Path, Record]], gpu: dict[str, tuple[Path, Record]], *, precision: str
) -> list[str]:
    """Print one line per cell and return the names of the cells that fail the check."""
    bad = []
    for name, (path, record) in sorted(gpu.items()):
        line: dict[str, object] = {"cell": name, "precision": precision, "status": record.status}
        if record.status == "complete":
            line |= {"test": record.test[record.metric], "device": record.costs.device}
            line |= {"train_seconds": round(record.costs.train_seconds, 2)}
            line |= {"peak_memory_mb": round(record.costs.peak_memory_mb)}
        equal = equal_share(cpu[name][0], path) if record.status == "complete" else 0.0
        line["equal"] = equal
        if record.status != "complete" or (precision == "32-true" and equal < LEAST_EQUAL):
            bad.append(name)
        print(json.dumps(line), flush=True)
    return bad


def check_several(cpu: dict[str, tuple[Path, Record]], folder: Path) -> list[str]:
    """Run cells over two GPUs with DDP and FSDP; the names of those that fail the check."""
    bad = []
    expected = {name for name in cpu if name.endswith("/mini_bert/full")}
    for strategy in ("ddp", "fsdp"):
        options = ["trainer.accelerator=gpu", f"trainer.strategy={strategy}", *SEVERAL]
        gpu = sweep(folder / strategy, *options)
        bad += [f"{n} ({strategy})" for n in compare(cpu, gpu, precision="32-true")]
        bad += [f"{n} ({strategy}): no record" for n in expected - set(gpu)]
    return bad


def main() -> int:
    import torch

    if not torch.cuda.is_available():
        print("gpu-check: no CUDA device found")
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cpu = sweep(folder / "cpu", "trainer.accelerator=cpu")
        bad = []
        for precision in ("32-true", "bf16-mixed"):
            more = ["trainer.accelerator=gpu", f"trainer.precision={precision}"]
            gpu = sweep(folder / precision, *more, "hydra.launcher.cells_per_device=4")
            bad += [f"{n} ({precision})" for n in compare(cpu, gpu, precision=precision)]
            bad += [f"{n} ({precision}): no record" for n in set(cpu) - set(gpu)]
        if torch.cuda.device_count() > 1:
            bad += check_several(cpu, folder)
    print(f"gpu-check: {'failed: ' + ', '.join(bad) if bad else 'passed'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
