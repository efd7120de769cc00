"""What the literature says of transfer, looked for in the mini world: ``python -m benchmarks.claims``.

Runs the sweeps that are missing (five seeds, two cells at a time) below a folder (``results/claims`` unless
one is given) and prints a table of claims as Markdown: effect, interval of 95 %, Holm's p over all lines of a
claim, and whether it is seen. A line is *seen* where p < 0.05 in the claimed direction, *contrary* where
p < 0.05 in the other one, else *not seen*. No threshold was moved to an outcome.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.claim_lines import Claim, Line, Results, effect, gain_over, less
from harness.leaderboard.stats.bootstrap import holm
from harness.leaderboard.table.rows import BoardRow

SEEDS = "seed=0,1,2,3,4"
FAMILIES = ("mini_static", "mini_elmo", "mini_ulmfit", "mini_bert", "mini_gpt")
CONTEXTUAL = FAMILIES[1:]
WORDS = ("mini_static", "mini_ulmfit")
"""Encoders that have a vector a word."""
LAYERED = ("mini_elmo", "mini_ulmfit", "mini_bert", "mini_gpt")
TASKS = ("mini_topic", "mini_ner", "mini_qa")
SIZES = ("100", "300", "1000")
MORE = "task.train=${{task.path}}/train*.{0}"
"""A thousand examples to learn from."""
SLOW, HELD = "0.1", "0.0"
"""Rates of an embedding table in units of the network's."""
WORDS_OF_TRAIN = {"mini_topic": ("cue:seen", "cue:unseen"), "mini_ner": ("name:train", "name:corpus")}
"""Slices whose words train has, and those of words of the corpus that train lacks."""
LOWER, TOP = "[1]", "[2]"
"""The first layer above the embeddings and the last, of all four."""
SWEEPS: dict[str, tuple[str, ...]] = {
    "grid": ("experiment=mini", f"encoder={','.join(CONTEXTUAL)}", "strategy=scratch,frozen,full"),
    # a pass costs a table little, and questions take it more than four
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
            ("slow", ("strategy=slow_embedding", "strategy.lr=null", f"strategy.relative_lr={HELD},{SLOW}")),
        )
    },
}  # fmt: skip


def best_pretrained(results: Results, task: str, encoder: str) -> BoardRow | None:
    """Of ``frozen`` and ``full`` the one that is better on dev; a table's ``full`` is ``embedding_init``."""
    whole = "embedding_init" if encoder == "mini_static" else "full"
    rows = [results.row(task, encoder, strategy) for strategy in ("frozen", whole)]
    scored = [row for row in rows if row is not None and row.dev is not None]
    return max(scored, key=lambda row: row.dev or 0.0, default=None)


def two_senses(results: Results) -> Claim:
    static = results.row("mini_sense", "mini_static", "frozen", body="none")
    lines = [
        results.line("mini_sense", results.row("mini_sense", e, "frozen", body="none"), static)
        for e in CONTEXTUAL
    ]
    return Claim(
        "A frozen contextual encoder tells a word's two senses apart, a word table cannot",
        "Peters et al. 2018, section 5.3",
        lines,
        ["States of the word alone, no network on top. The table is at 0.5 by construction."],
    )


def unseen_names(results: Results) -> Claim:
    elmo = results.row("mini_ner", "mini_elmo", "frozen")
    lines = [
        results.line("mini_ner, `name:new`", elmo, results.row("mini_ner", e, "frozen"), tag="name:new")
        for e in WORDS
    ]
    return Claim(
        "Names that were never seen: characters know more than word tables",
        "Peters et al. 2018, section 3.4",
        lines,
        ["Both frozen under the same network; only examples with a name that is nowhere in corpus or train."],
    )


def transfer_pays(results: Results) -> Claim:
    lines = [
        results.line(task, best_pretrained(results, task, e), results.row(task, e, "scratch"))
        for task in TASKS
        for e in FAMILIES
    ]
    return Claim(
        "Pretraining pays: each family's best pretrained cell is above the same architecture from scratch",
        "all of the works re-run here",
        lines,
        ["Best of `frozen` and `full` (of a table `embedding_init`, which is the same), chosen on dev."],
    )


def layers(results: Results) -> Claim:
    def at(task: str, encoder: str, layer: str) -> BoardRow | None:
        return results.row(task, encoder, "frozen", body="none", layers=layer)

    lines, notes = [], []
    for encoder in LAYERED:
        lines.append(results.line("mini_pos", at("mini_pos", encoder, LOWER), at("mini_pos", encoder, TOP)))
        top, low = at("mini_sense", encoder, TOP), at("mini_sense", encoder, LOWER)
        lines.append(results.line("mini_sense", top, low))
        notes.append(f"{encoder}, scores by layer: {_by_layer(results, encoder)}.")
        depths = [_depth(at(task, encoder, "mix")) for task in ("mini_pos", "mini_sense")]
        told = " and ".join(f"{d:.2f}" if d is not None else "?" for d in depths)
        notes.append(f"{encoder}, mean layer of the learnt mix: {told} for mini_pos and mini_sense.")
    return Claim(
        "Lower layers hold syntax, upper ones meaning: layer 1 wins mini_pos, the top layer mini_sense",
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
    """Mean layer of the learnt weights, over seeds."""
    if row is None:
        return None
    found = [np.average(r.mix["layers"], weights=r.mix["weights"]) for r in row.complete if r.mix]
    return float(np.mean(found)) if found else None


def growth(results: Results) -> Claim:
    lines = []
    for task, encoder, i, strategy in _tables():
        most, least = (
            less(results.sample(rows[i]), results.sample(rows[2]))
            for rows in (_moving(results, task, encoder, size) for size in (SIZES[-1], SIZES[0]))
        )
        what = f"{task}, {encoder}, {strategy}"
        lines.append(gain_over(what, (most, f"of {SIZES[-1]}"), (least, f"of {SIZES[0]}")))
    return Claim(
        "The more labels, the more a table that may move gains on the same table held",
        "Kim 2014, table 2, on tables that move; that it depends on the labels is the harness's own question",
        lines,
        [
            f"A line is the gain at {SIZES[-1]} examples less that at {SIZES[0]}. All cells of an encoder "
            "have one network over one table, whose rate is that of the network (`embedding_init`), "
            f"{SLOW} of it (`slow_embedding`) or none (held)."
        ],
    )


def left_behind(results: Results) -> Claim:
    head = ["gain on the same table held, by examples", "test examples", *SIZES]
    lines, more = [], [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for task, encoder, i, strategy in _tables():
        what, tags = f"{task}, {encoder}, {strategy}", WORDS_OF_TRAIN[task]
        by_size = {size: _moving(results, task, encoder, size) for size in SIZES}
        rows = by_size[SIZES[-1]]
        has, lacks = (less(results.sample(rows[i], tag), results.sample(rows[2], tag)) for tag in tags)
        lines.append(gain_over(what, (has, f"on `{tags[0]}`"), (lacks, f"on `{tags[1]}`")))
        for tag in (None, *tags):
            told = [effect(results.line("", r[i], r[2], tag=tag)) for r in by_size.values()]
            more.append(f"| {what} | {f'`{tag}`' if tag else 'all'} | {' | '.join(told)} |")
    return Claim(
        "A table that moves gains on words that train has, and leaves behind those it lacks",
        "looked for since 5 came out as it did; the slices were there before",
        lines,
        [f"A line is the gain on words that train has less that on others, at {SIZES[-1]} examples."],
        more,
    )


def _tables() -> Iterator[tuple[str, str, int, str]]:
    """Task, encoder, and the moving tables by their place in what :func:`_moving` gives."""
    for task in WORDS_OF_TRAIN:
        for encoder in ("mini_static", "mini_bert"):
            for i, strategy in enumerate(("embedding_init", "slow_embedding")):
                yield task, encoder, i, strategy


def _moving(results: Results, task: str, encoder: str, size: str) -> tuple[BoardRow | None, ...]:
    """Rows of a table that moves at the network's rate, slowly, and not at all."""
    slow = [
        results.row(task, encoder, "slow_embedding", relative_lr=rate, train_size=size)
        for rate in (SLOW, HELD)
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
    """With Holm's p over the lines of the claim."""
    measured = [line for line in claim.lines if line.spread is not None]
    for line, p in zip(measured, holm([line.p for line in measured]), strict=True):
        line.p = p
    return claim


def markdown(claims: Iterable[Claim]) -> str:
    out = []
    for number, claim in enumerate(claims, start=1):
        seen = sum(line.verdict == "seen" for line in claim.lines)
        out += [f"## {number}. {claim.text}", f"({claim.source}.) Seen in {seen} of {len(claim.lines)}.", ""]
        out += ["| | above | below | effect | 95 % | p | |", "| --- | --- | --- | --- | --- | --- | --- |"]
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
    """Run what is missing of each sweep.

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
        description="Looks for what the literature says of transfer in the mini world.",
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
