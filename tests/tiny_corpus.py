"""A hundred sentences of three words, and the smallest sizes, for tests of pretraining."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from harness.pretraining.settings import checked, compose

NAMES, VERBS, THINGS = ("Ana", "Ben", "Cleo", "Dov"), ("sees", "likes", "paints"), ("it", "them", "Kiev")
TINY = {
    "bert": ["encoder.layers=1", "encoder.width=16", "encoder.heads=2", "encoder.feed_forward=32",
             "encoder.positions=24", "encoder.vocabulary=90", "encoder.batch_rows=8"],
    "gpt": ["encoder.layers=1", "encoder.width=16", "encoder.heads=2", "encoder.feed_forward=32",
            "encoder.positions=24", "encoder.vocabulary=300", "encoder.batch_rows=4"],
    "ulmfit": ["encoder.embedding=12", "encoder.hidden=20", "encoder.layers=2", "encoder.batch_rows=4",
               "encoder.bptt=12", "encoder.min_frequency=1"],
}  # fmt: skip


def documents(count: int = 25) -> list[list[str]]:
    """Documents of four sentences."""
    rng = random.Random(0)
    return [
        [f"{rng.choice(NAMES)} {rng.choice(VERBS)} {rng.choice(THINGS)} ." for _ in range(4)]
        for _ in range(count)
    ]


def write(folder: Path) -> Path:
    path = folder / "corpus.txt"
    path.write_text("\n\n".join("\n".join(d) for d in documents()) + "\n")
    return path


def config(family: str, *more: str, corpus: Path, output: Path) -> dict[str, Any]:
    """The checked configuration of a tiny run of 20 steps."""
    trainer = ["trainer.accelerator=cpu", "trainer.logger=none", "trainer.threads=1"]
    given = [f"encoder={family}", *TINY[family], "budget.steps=20", *trainer, *more]
    return checked(compose([*given, f"corpus={corpus}", f"output={output}"]))
