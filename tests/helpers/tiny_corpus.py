"""A corpus of a hundred three-word sentences, and the smallest model sizes, for pretraining tests."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from harness.pretraining.config import compose, validate_config

NAMES, VERBS, OBJECTS = ("Ana", "Ben", "Cleo", "Dov"), ("sees", "likes", "paints"), ("it", "them", "Kiev")
TINY = {
    "bert": ["encoder.layers=1", "encoder.width=16", "encoder.heads=2", "encoder.feed_forward=32",
             "encoder.positions=24", "encoder.vocabulary=90", "encoder.batch_rows=8"],
    "gpt": ["encoder.layers=1", "encoder.width=16", "encoder.heads=2", "encoder.feed_forward=32",
            "encoder.positions=24", "encoder.vocabulary=300", "encoder.batch_rows=4"],
    "ulmfit": ["encoder.embedding=12", "encoder.hidden=20", "encoder.layers=2", "encoder.batch_rows=4",
               "encoder.bptt=12", "encoder.min_frequency=1"],
}  # fmt: skip
ALL = TINY | {
    "elmo": ["encoder.cells=7", "encoder.projection=5", "encoder.characters=3",
             "encoder.filters=[[1,3],[2,4]]", "encoder.row_words=12", "encoder.batch_words=40"],
    "word2vec": ["encoder.dim=6"],
    "fasttext": ["encoder.dim=6", "encoder.buckets=50"],
    "glove": ["encoder.dim=6", "encoder.batch=32"],
}  # fmt: skip
"""All families; :data:`TINY` has only those trained on rows of tokens."""


def documents(count: int = 25) -> list[list[str]]:
    """Generate documents of four sentences."""
    rng = random.Random(0)
    return [
        [f"{rng.choice(NAMES)} {rng.choice(VERBS)} {rng.choice(OBJECTS)} ." for _ in range(4)]
        for _ in range(count)
    ]


def write(folder: Path) -> Path:
    path = folder / "corpus.txt"
    path.write_text("\n\n".join("\n".join(d) for d in documents()) + "\n")
    return path


def arguments(family: str, *more: str, corpus: Path, output: Path) -> list[str]:
    """Return the arguments of ``harness pretrain`` for a tiny run of 20 steps."""
    trainer = ["trainer.accelerator=cpu", "trainer.logger=none", "trainer.threads=1"]
    given = [f"encoder={family}", *ALL[family], "budget.steps=20", *trainer, *more]
    return [*given, f"corpus={corpus}", f"output={output}"]


def config(family: str, *more: str, corpus: Path, output: Path) -> dict[str, Any]:
    """Return the validated configuration of a tiny run of 20 steps."""
    return validate_config(compose(arguments(family, *more, corpus=corpus, output=output)))


def go_away(monkeypatch: Any, *, step: int) -> None:
    """Make training fail with a RuntimeError before ``step``, to simulate a crashed machine."""
    from harness.pretraining.trainer import PretrainModule

    original = PretrainModule.training_step

    def fails(self: PretrainModule, item: Any, number: int) -> None:
        if self.progress.steps == step:
            raise RuntimeError("the machine went away")
        original(self, item, number)

    monkeypatch.setattr(PretrainModule, "training_step", fails)
