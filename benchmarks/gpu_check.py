"""What a machine with a GPU is asked: do cells give there what they give on the CPU, and what do they cost?

    make gpu-check

Runs cells of the mini world on both through the command line, so that the warm server, the device slots and
CUDA in forked children are exercised, and prints one JSON line a cell: scores, share of equal predictions,
seconds.
Fails when a cell fails on the GPU, or when a single-precision one disagrees with the CPU on more than 5 % of
the test examples.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness.records.predictions import read_predictions
from harness.records.record import Record, iter_records

GRID = [
    "task=mini_topic,mini_ner,mini_qa",
    "encoder=mini_static,mini_bert,mini_gpt",
    "strategy=frozen,embedding_init,full",
    "trainer.epochs=3",
]
LEAST_EQUAL = 0.95


def sweep(folder: Path, *overrides: str) -> dict[str, tuple[Path, Record]]:
    """Run the grid into ``folder``; folder and record of each cell by ``task/encoder/strategy``."""
    places = [f"results_dir={folder / 'results'}", f"cache_dir={folder / 'cache'}"]
    command = [sys.executable, "-P", "-m", "harness", "-m", *GRID, *places, *overrides]
    subprocess.run(command, check=False)
    found = {}
    for path, record in iter_records(folder / "results"):
        if isinstance(record, Record) and record.status != "skipped":
            found[f"{record.task}/{record.encoder}/{record.strategy}"] = (path, record)
    return found


def equal_share(one: Path, other: Path) -> float:
    """Share of test examples whose predictions are the same."""
    left = {r["id"]: r["prediction"] for r in read_predictions(one)}
    right = {r["id"]: r["prediction"] for r in read_predictions(other)}
    return sum(left[i] == right[i] for i in left) / len(left)


def compare(cpu: dict[str, Any], gpu: dict[str, Any], *, precision: str) -> list[str]:
    """Print a line a cell; the names of the cells that fail the check."""
    bad = []
    for name, (path, record) in sorted(gpu.items()):
        line: dict[str, Any] = {"cell": name, "precision": precision, "status": record.status}
        if record.status == "complete":
            line |= {"test": record.test[record.metric], "device": record.costs.device}
            line |= {"train_seconds": round(record.costs.train_seconds, 2)}
            line |= {"peak_memory_mb": round(record.costs.peak_memory_mb)}
            line["equal"] = equal_share(cpu[name][0], path)
        if record.status != "complete" or (precision == "32-true" and line["equal"] < LEAST_EQUAL):
            bad.append(name)
        print(json.dumps(line), flush=True)
    return bad


def main() -> int:
    import torch

    if not torch.cuda.is_available():
        print("gpu-check: there is no CUDA device here")
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
    print(f"gpu-check: {'failed: ' + ', '.join(bad) if bad else 'passed'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
