"""Times what a user waits for: ``python -m benchmarks.bench``. Exit code 1 when a limit is missed."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from harness.records.record import Record

RECORDS = 10_000
REPEATS = 3


def write_records(root: Path) -> None:
    """Plausible records: 10 encoders, 5 strategies, 5 seeds, and as many variants as it takes."""
    for i in range(RECORDS):
        cell, seed, score = f"{i // 5:012x}", i % 5, 0.5 + (i * 37 % 1000) / 2500
        r = Record("complete", "task", f"encoder-{i // 5 % 10}", f"strategy-{i // 50 % 5}", cell, seed)
        r.metric, r.test, r.dev, r.dev_history = (
            "accuracy",
            {"accuracy": score},
            {"accuracy": score},
            [score] * 20,
        )
        r.variant = {"optimizer.lr": i // 250 * 1e-4}
        folder = root / r.task / r.encoder / r.strategy / cell / f"seed-{seed}"
        folder.mkdir(parents=True)
        (folder / "record.json").write_text(json.dumps(asdict(r)))


def seconds(*arguments: str, repeats: int = REPEATS) -> float:
    """Best wall time of the command."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        command = [sys.executable, "-m", "harness", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append(time.perf_counter() - begin)
    return min(times)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_records(root / "many")
        cell = ("task=mini_topic", "encoder=mini_static", "strategy=frozen", f"cache_dir={root}/cache")
        found = [
            ("harness --help", 1.0, seconds("--help")),
            (f"harness leaderboard, {RECORDS} records", 5.0, seconds("leaderboard", str(root / "many"))),
            ("one cell of the mini world", 30.0, seconds(*cell, f"results_dir={root}/one", repeats=1)),
        ]
    for what, limit, took in found:
        print(f"{what:40s} {took:6.2f} s  limit {limit:.0f} s{'' if took <= limit else '  MISSED'}")
    return int(any(took > limit for _, limit, took in found))


if __name__ == "__main__":
    sys.exit(main())
