"""Compare small encoders of every family, pretrained on a plain text, with untrained ones.

``python -m benchmarks.from_text TRAIN_TEXT HELD_OUT_TEXT TREC_FOLDER [RESULTS]``

Each family's ``small`` size is pretrained on the first text for :data:`SECONDS` of training (word vectors:
their default number of epochs), two at a time, and evaluated on the second text. The frozen encoder is then
evaluated with the default network on TREC with :data:`SEEDS` and :data:`EXAMPLES`, and so is a randomly
initialised one (``budget.steps=0``). Completed steps are not repeated. Prints two tables as Markdown.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness.leaderboard.stats.bootstrap import holm
from harness.leaderboard.stats.comparisons import Sample, Samples, difference
from harness.leaderboard.table.board import read
from harness.leaderboard.table.rows import by_variant

SECONDS = 420
SEEDS, EXAMPLES = "seed=0,1,2", "task.train_size=2000"
LANGUAGE_MODELS = ("elmo", "ulmfit", "bert", "gpt")
FAMILIES: dict[str, tuple[str, ...]] = {
    **{family: (f"encoder={family}", f"budget.seconds={SECONDS}") for family in LANGUAGE_MODELS},
    "word2vec": ("encoder=word2vec",),
    "cbow": ("encoder=word2vec", "encoder.objective=cbow"),
    "glove": ("encoder=glove",),
    "fasttext": ("encoder=fasttext",),
}
UNTRAINED = "untrained"
SLOTS = int(os.environ.get("SLOTS", "2"))
NONE: tuple[str, ...] = ("budget.steps=0", "budget.seconds=null", "held_out=0")


def pretrain(name: str, train: Path, output: Path, *more: str) -> dict[str, Any]:
    """Pretrain one encoder and return its record.

    Raises:
        SystemExit: pretraining failed.
    """
    command = [
        sys.executable, "-m", "harness", "pretrain", *FAMILIES[name], "encoder.size=small", f"corpus={train}",
        f"output={output}", "trainer.threads=1", "trainer.accelerator=cpu", *more,
    ]  # fmt: skip
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.with_suffix(".log").open("ab") as log:
        if subprocess.run(command, stdout=log, stderr=log).returncode:
            raise SystemExit(f"{name}: see {log.name}")
    record: dict[str, Any] = json.loads((output / "pretrain.json").read_text(encoding="utf-8"))
    return record


def cells(name: str, record: dict[str, Any], output: Path, trec: Path, results: Path, *more: str) -> None:
    """Evaluate the frozen encoder on TREC.

    Raises:
        SystemExit: cells failed.
    """
    family = record["loads_as"]
    path = output / "model.bin" if family == "fasttext" else output
    command = [
        sys.executable, "-m", "harness", "-m", "task=trec", f"task.path={trec}", f"encoder={family}",
        f"encoder.name={name}", f"encoder.path={path}", "strategy=frozen", EXAMPLES, SEEDS,
        f"results_dir={results}", "trainer.threads=1", "trainer.accelerator=cpu", *more,
    ]  # fmt: skip
    if subprocess.run(command).returncode:
        raise SystemExit(f"{name}: not all cells are complete; harness status {results}")


def measures(records: dict[str, dict[str, Any]]) -> str:
    """Table of the cost and the result of pretraining."""
    out = [
        "| encoder | parameters | tokens seen | epochs | training s | total s | held out | unigram "
        "baseline |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, record in records.items():
        held_out, seen = record["held_out"], record["seen"]
        result, unigram = "-", "-"
        if held_out and held_out["perplexity_per_word"] is not None:
            result = f"{held_out['perplexity_per_word']:.1f} per word"
            unigram = f"{math.exp(held_out['unigram_nll'] / held_out['words']):.1f}"
        elif held_out and held_out["unigram_nll"] is not None:
            result = f"{held_out['masked_nll']:.3f} nats per masked piece"
            unigram = f"{held_out['unigram_nll'] / held_out['tokens']:.3f}"
        out.append(
            f"| {name} | {record['parameters']:,} | {seen['tokens']:,} | {seen['epochs']:.1f} | "
            f"{seen['seconds']:.0f} | {record['total_seconds']:.0f} | {result} | {unigram} |"
        )
    return "\n".join(out)


def comparison(results: Path) -> str:
    """Table of trained and untrained encoders: paired by examples and seeds, p values with Holm's
    correction."""
    found = read(results)
    rows = {row.records[0].encoder: row for row in by_variant(found.records)}
    samples = Samples(found.configs)
    names = [name for name in FAMILIES if name in rows and f"{name}_{UNTRAINED}" in rows]
    pairs = [tuple(samples.of(rows[n]) for n in (name, f"{name}_{UNTRAINED}")) for name in names]
    spreads = [difference(*pair, pair_seeds=True) for pair in pairs]
    out = [
        "| encoder, frozen | trained | untrained | effect | 95 % | p |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    found_p = holm([s[0].p_value() for s in spreads if not isinstance(s, str)])
    for name, pair, spread in zip(names, pairs, spreads, strict=True):
        if isinstance(spread, str):
            out.append(f"| {name} | | | {spread} | | |")
            continue
        low, high = spread[0].interval()
        out.append(
            f"| {name} | {_seeds(pair[0])} | {_seeds(pair[1])} | {spread[0].mean:+.3f} | "
            f"{low:+.3f} to {high:+.3f} | {found_p.pop(0):.4f} |"
        )
    return "\n".join(out)


def _seeds(sample: Sample | str) -> str:
    if isinstance(sample, str):
        return sample
    return f"{sample.scores.mean():.3f} ({', '.join(f'{s:.3f}' for s in sample.scores)})"


def main(argv: Sequence[str]) -> int:
    if len(argv) not in (3, 4):
        print(__doc__)
        return 2
    train, held_out, trec = (Path(a).absolute() for a in argv[:3])
    folder = Path(argv[3] if len(argv) == 4 else "results/from_text").absolute()
    outputs, results = folder / "encoders", folder / "trec"
    jobs: list[tuple[str, str, tuple[str, ...]]]
    jobs = [(name, name, (f"held_out={held_out}",)) for name in FAMILIES]
    jobs += [(name, f"{name}_{UNTRAINED}", NONE) for name in FAMILIES]
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda j: pretrain(j[0], train, outputs / j[1], *j[2]), jobs))
    for (_, output, _), record in zip(jobs, made, strict=True):
        cells(output, record, outputs / output, trec, results, f"hydra.launcher.slots={SLOTS}")
    trained = {name: record for (name, output, _), record in zip(jobs, made, strict=True) if name == output}
    print(measures(trained), comparison(results), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
