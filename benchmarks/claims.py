"""Test claims of the literature on transfer learning with the mini models: ``python -m benchmarks.claims``.

Runs the missing cells of the sweeps (five seeds, two cells at a time) in a folder (default:
``results/claims``) and prints a table per claim as Markdown: effect, 95 % confidence interval, p-value with
Holm's correction over the lines of the claim, and verdict. A line is *seen* if p < 0.05 in the claimed
direction, *contrary* if p < 0.05 in the opposite direction, else *not seen*. The thresholds were fixed before
the experiments.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.claim_lines import Claim, Line, Results, compare_gains, effect, gain
from harness.leaderboard.stats.bootstrap import holm
from harness.leaderboard.table.rows import BoardRow

SEEDS = "seed=0,1,2,3,4"
FAMILIES = ("mini_static", "mini_elmo", "mini_ulmfit", "mini_bert", "mini_gpt")
CONTEXTUAL = FAMILIES[1:]
WORDS = ("mini_static", "mini_ulmfit")
"""Encoders with one vector per word."""
LAYERED = ("mini_elmo", "mini_ulmfit", "mini_bert", "mini_gpt")
TASKS = ("mini_topic", "mini_ner", "mini_qa")
SIZES = ("100", "300", "1000")
MORE = "task.train=${{task.path}}/train*.{0}"
"""Larger training files, with at least a thousand examples."""
SLOW, FIXED = "0.1", "0.0"
"""Learning rates of an embedding table relative to that of the network."""
WORDS_OF_TRAIN = {"mini_topic": ("cue:seen", "cue:unseen"), "mini_ner": ("name:train", "name:corpus")}
"""Slices with words that occur in train, and with words of the pretraining corpus that do not."""
LOWER, TOP = "[1]", "[2]"
"""The first layer above the embeddings and the last one, of all four encoders."""
SWEEPS: dict[str, tuple[str, ...]] = {
    "grid": ("experiment=mini", f"encoder={','.join(CONTEXTUAL)}", "strategy=scratch,frozen,full"),
    # an epoch of an embedding table is cheap, and mini_qa needs more than four
    "table": (
        "experiment=mini", "encoder=mini_static", "strategy=scratch,frozen,embedding_init",
        "passes.mini_qa=12",
    ),
    "senses": ("task=mini_sense", f"encoder={','.join(FAMILIES)}", "strategy=frozen", "body=none"),
    "layers": (
        "task=mini_pos,mini_sense", f"encoder={','.join(LAYERED)}", "strategy=frozen", "body=none",
        "encoder.layers=[0],[1],[2],mix",
    ),
    **{
        f"{name}_{task}": (
            f"task=mini_{task}", MORE.format(suffix), f"task.train_size={','.join(SIZES)}",
            "encoder=mini_static,mini_bert", *strategy,
        )
        for task, suffix in (("topic", "csv"), ("ner", "txt"))
        for name, strategy in (
            ("moving", ("strategy=embedding_init",)),
            ("slow", ("strategy=slow_embedding", "strategy.lr=null", f"strategy.relative_lr={FIXED},{SLOW}")),
        )
    },
}  # fmt: skip


def best_pretrained(results: Results, task: str, encoder: str) -> BoardRow | None:
    """The better of ``frozen`` and ``full`` on dev; for an embedding table ``full`` is ``embedding_init``."""
    full = "embedding_init" if encoder == "mini_static" else "full"
    rows = [results.row(task, encoder, strategy) for strategy in ("frozen", full)]
    scored = [row for row in rows if row is not None and row.dev is not None]
    return max(scored, key=lambda row: row.dev or 0.0, default=None)


def two_senses(results: Results) -> Claim:
    """Contextual encoders against word vectors on ambiguous words."""
    static = results.row("mini_sense", "mini_static", "frozen", body="none")
    lines = [
        results.line("mini_sense", results.row("mini_sense", e, "frozen", body="none"), static)
        for e in CONTEXTUAL
    ]
    return Claim(
        "Frozen contextual encoders distinguish the two senses of a word, word vectors cannot",
        "Peters et al. 2018, section 5.3",
        lines,
        ["Only the hidden state of the word, no BiLSTM on top. Word vectors are at 0.5 by construction."],
    )


def unseen_names(results: Results) -> Claim:
    """Character-based against word-based encoders on new names."""
    elmo = results.row("mini_ner", "mini_elmo", "frozen")
    lines = [
        results.line("mini_ner, `name:new`", elmo, results.row("mini_ner", e, "frozen"), tag="name:new")
        for e in WORDS
    ]
    return Claim(
        "On names that were never seen, character-based encoders are better than word vectors",
        "Peters et al. 2018, section 3.4",
        lines,
        ["Both frozen with the same task network; only examples with a name that is not in corpus or train."],
    )


def transfer_pays(results: Results) -> Claim:
    """Pretrained against random weights, per family and task."""
    lines = [
        results.line(task, best_pretrained(results, task, e), results.row(task, e, "scratch"))
        for task in TASKS
        for e in FAMILIES
    ]
    return Claim(
        "Pretraining helps: the best pretrained cell of each family is better than training from scratch",
        "all works reproduced here",
        lines,
        ["The better of `frozen` and `full` on dev (for word vectors `embedding_init`, which is the same)."],
    )


def layers(results: Results) -> Claim:
    """Lower against upper layers on syntax and word senses."""

    def at(task: str, encoder: str, layer: str) -> BoardRow | None:
        return results.row(task, encoder, "frozen", body="none", layers=layer)

    lines, notes = [], []
    for encoder in LAYERED:
        lines.append(results.line("mini_pos", at("mini_pos", encoder, LOWER), at("mini_pos", encoder, TOP)))
        top, low = at("mini_sense", encoder, TOP), at("mini_sense", encoder, LOWER)
        lines.append(results.line("mini_sense", top, low))
        notes.append(f"{encoder}, scores by layer: {_by_layer(results, encoder)}.")
        depths = [_depth(at(task, encoder, "mix")) for task in ("mini_pos", "mini_sense")]
        listed = " and ".join(f"{d:.2f}" if d is not None else "?" for d in depths)
        notes.append(f"{encoder}, mean layer of the learned mix: {listed} for mini_pos and mini_sense.")
    return Claim(
        "Lower layers encode syntax, upper ones meaning: layer 1 wins on mini_pos, the top one on mini_sense",
        "Peters et al. 2018, section 5.3; Tenney et al. 2019",
        lines,
        notes,
    )


def _by_layer(results: Results, encoder: str) -> str:
    parts = []
    for task in ("mini_pos", "mini_sense"):
        rows = [results.row(task, encoder, "frozen", body="none", layers=f"[{i}]") for i in range(3)]
        parts.append(
            f"{task} " + " / ".join("?" if r is None or r.mean is None else f"{r.mean:.3f}" for r in rows)
        )
    return "; ".join(parts)


def _depth(row: BoardRow | None) -> float | None:
    """Mean layer under the learned weights, averaged over seeds."""
    if row is None:
        return None
    depths = [np.average(r.mix["layers"], weights=r.mix["weights"]) for r in row.complete if r.mix]
    return float(np.mean(depths)) if depths else None


def growth(results: Results) -> Claim:
    """The gain from training an embedding table, with many against few labels."""
    lines = []
    for task, encoder, i, strategy in _tables():
        many, few = (
            gain(results.sample(rows[i]), results.sample(rows[2]))
            for rows in (_trained_tables(results, task, encoder, size) for size in (SIZES[-1], SIZES[0]))
        )
        what = f"{task}, {encoder}, {strategy}"
        lines.append(compare_gains(what, (many, f"of {SIZES[-1]}"), (few, f"of {SIZES[0]}")))
    return Claim(
        "The more labels, the larger the gain of a trained embedding table over a fixed one",
        "Kim 2014, table 2, on trained tables; the dependence on the number of labels is our own question",
        lines,
        [
            f"A line is the gain at {SIZES[-1]} examples minus that at {SIZES[0]}. All cells of an encoder "
            "have the same network and table; the learning rate of the table is that of the network "
            f"(`embedding_init`), {SLOW} times that (`slow_embedding`) or 0 (fixed)."
        ],
    )


def left_behind(results: Results) -> Claim:
    """The gain from training an embedding table, on words in train against other words."""
    head = ["gain over the fixed table, by training examples", "test examples", *SIZES]
    lines, more = [], [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for task, encoder, i, strategy in _tables():
        what, tags = f"{task}, {encoder}, {strategy}", WORDS_OF_TRAIN[task]
        by_size = {size: _trained_tables(results, task, encoder, size) for size in SIZES}
        rows = by_size[SIZES[-1]]
        has, lacks = (gain(results.sample(rows[i], tag), results.sample(rows[2], tag)) for tag in tags)
        lines.append(compare_gains(what, (has, f"on `{tags[0]}`"), (lacks, f"on `{tags[1]}`")))
        for tag in (None, *tags):
            effects = [effect(results.line("", r[i], r[2], tag=tag)) for r in by_size.values()]
            more.append(f"| {what} | {f'`{tag}`' if tag else 'all'} | {' | '.join(effects)} |")
    return Claim(
        "A trained embedding table gains on words that occur in train, less so on other words",
        "tested because of the result of claim 5; the slices existed before",
        lines,
        [f"A line is the gain on words in train minus that on other words, at {SIZES[-1]} examples."],
        more,
    )


def _tables() -> Iterator[tuple[str, str, int, str]]:
    """Task, encoder, and the trained tables by their index in the result of :func:`_trained_tables`."""
    for task in WORDS_OF_TRAIN:
        for encoder in ("mini_static", "mini_bert"):
            for i, strategy in enumerate(("embedding_init", "slow_embedding")):
                yield task, encoder, i, strategy


def _trained_tables(results: Results, task: str, encoder: str, size: str) -> tuple[BoardRow | None, ...]:
    """Rows of a table trained at the network's learning rate, at a lower one, and not at all."""
    slow = [
        results.row(task, encoder, "slow_embedding", relative_lr=rate, train_size=size)
        for rate in (SLOW, FIXED)
    ]
    return results.row(task, encoder, "embedding_init", train_size=size), *slow


CLAIMS: tuple[Callable[[Results], Claim], ...] = (
    two_senses,
    unseen_names,
    transfer_pays,
    layers,
    growth,
    left_behind,
)


def adjusted(claim: Claim) -> Claim:
    """The claim with Holm's correction over its lines."""
    measured = [line for line in claim.lines if line.spread is not None]
    for line, p in zip(measured, holm([line.p for line in measured]), strict=True):
        line.p = p
    return claim


def markdown(claims: Iterable[Claim]) -> str:
    """A section with a table per claim."""
    out = []
    for number, claim in enumerate(claims, start=1):
        seen = sum(line.verdict == "seen" for line in claim.lines)
        out += [f"## {number}. {claim.text}", f"({claim.source}.) Seen in {seen} of {len(claim.lines)}.", ""]
        out += ["| | above | below | effect | 95 % CI | p | |", "| --- | --- | --- | --- | --- | --- | --- |"]
        out += [_markdown_row(line) for line in claim.lines]
        out += ["", *(f"- {note}" for note in claim.notes), ""]
        out += [*claim.more, ""] if claim.more else []
    return "\n".join(out)


def _markdown_row(line: Line) -> str:
    if line.spread is None:
        return f"| {line.what} | {line.a} | {line.b} | | | | {line.verdict} |"
    low, high = line.spread.interval()
    p = "< 0.001" if line.p < 0.001 else f"{line.p:.3f}"
    return (
        f"| {line.what} | {line.a} | {line.b} | {line.spread.mean:+.3f} | {low:+.3f} to {high:+.3f} | {p} | "
        f"{line.verdict} |"
    )


def run(folder: Path) -> None:
    """Run the missing cells of each sweep.

    Raises:
        SystemExit: cells of a sweep failed.
    """
    for name, overrides in SWEEPS.items():
        command = [
            sys.executable, "-m", "harness", "-m", f"results_dir={folder / name}", *overrides, SEEDS,
            "trainer.accelerator=cpu", "trainer.threads=1", "hydra.launcher.slots=2",
        ]  # fmt: skip
        if subprocess.run(command).returncode:
            raise SystemExit(f"{name}: not all cells are complete; harness status {folder / name}")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.claims",
        description="Test claims of the literature on transfer learning with the mini models.",
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path("results/claims"))
    folder = parser.parse_args(argv).folder
    begin = time.monotonic()
    run(folder)
    spent = (time.monotonic() - begin) / 60
    results = Results(folder, SWEEPS)
    print(markdown(adjusted(claim(results)) for claim in CLAIMS))
    print(f"{sum(len(r.complete) for r in results.rows)} cells, {spent:.0f} minutes.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
