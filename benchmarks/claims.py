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
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from harness.leaderboard.board import read
from harness.leaderboard.bootstrap import Spread, holm, of_difference
from harness.leaderboard.rows import Row, by_variant
from harness.leaderboard.statistics import ALPHA, Sample, Samples, difference

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
ALIKE = ("trainer.epochs", "strategy.lr")
"""Settings of a sweep that do not tell its rows apart."""


@dataclass(slots=True)
class Line:
    """``a`` is claimed to be above ``b``; ``spread`` is of a - b, None for the reason ``why``."""

    what: str
    a: str
    b: str
    spread: Spread | None
    why: str = ""
    p: float = 1.0

    @property
    def verdict(self) -> str:
        if self.spread is None:
            return f"not measured ({self.why})"
        if self.p >= ALPHA:
            return "not seen"
        return "seen" if self.spread.mean > 0 else "contrary"


@dataclass(slots=True)
class Claim:
    """A sentence, its source, and the lines that it was looked for in; ``more`` are lines of Markdown."""

    text: str
    source: str
    lines: list[Line]
    notes: list[str]
    more: Sequence[str] = ()


class Results:
    """The rows of all sweeps, and their samples."""

    def __init__(self, folder: Path) -> None:
        self.rows: list[Row] = []
        self._samples: dict[int, Samples] = {}
        for name in SWEEPS:
            found = read(folder / name)
            samples = Samples(found.configs)
            for row in by_variant(found.records):
                self.rows.append(row)
                self._samples[id(row)] = samples

    def row(self, task: str, encoder: str, strategy: str, **variant: str) -> Row | None:
        """The row with just this variant; ``layers``, ``train_size`` and ``relative_lr`` are texts."""
        for row in self.rows:
            record = row.records[0]
            if (row.task, record.encoder, record.strategy) != (task, encoder, strategy):
                continue
            told = {k: v for k, v in record.variant.items() if k not in ALIKE}
            known = {k.rpartition(".")[2]: str(v).replace(" ", "") for k, v in told.items()}
            if known == variant:
                return row
        return None

    def sample(self, row: Row | None, tag: str | None = None) -> Sample | str:
        """The row on all examples, or on those with ``tag``."""
        if row is None:
            return "no such cell"
        if row.skipped and not row.complete:
            return f"skipped: {row.records[0].reason}"
        samples = self._samples[id(row)]
        if tag is None:
            return samples.of(row)
        stored = [samples.stored(r, tags=True) for r in row.complete]
        if bad := [s for s in stored if isinstance(s, str)]:
            return bad[0]
        kept = [s for s in stored if not isinstance(s, str)]
        chosen = np.array([tag in t for t in kept[0].tags])
        return samples.resample(row.complete, kept, metric=row.metric, chosen=chosen)

    def line(self, what: str, a: Row | None, b: Row | None, *, tag: str | None = None) -> Line:
        one, other = self.sample(a, tag), self.sample(b, tag)
        found = difference(one, other, pair_seeds=True)
        above, below = _score(a, one), _score(b, other)
        if isinstance(found, str):
            return Line(what, above, below, None, found)
        return Line(what, above, below, found[0], p=found[0].p_value())


def _score(row: Row | None, sample: Sample | str) -> str:
    name = row.name if row else "?"
    return name if isinstance(sample, str) else f"{name} {sample.scores.mean():.3f}"


def best_pretrained(results: Results, task: str, encoder: str) -> Row | None:
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
    def at(task: str, encoder: str, layer: str) -> Row | None:
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


def _depth(row: Row | None) -> float | None:
    """Mean layer of the learnt weights, over seeds."""
    if row is None:
        return None
    found = [np.average(r.mix["layers"], weights=r.mix["weights"]) for r in row.complete if r.mix]
    return float(np.mean(found)) if found else None


def growth(results: Results) -> Claim:
    lines = []
    for task, encoder, i, strategy in _tables():
        most, least = (
            _less(results.sample(rows[i]), results.sample(rows[2]))
            for rows in (_moving(results, task, encoder, size) for size in (SIZES[-1], SIZES[0]))
        )
        what = f"{task}, {encoder}, {strategy}"
        lines.append(_difference(what, (most, f"of {SIZES[-1]}"), (least, f"of {SIZES[0]}")))
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
        has, lacks = (_less(results.sample(rows[i], tag), results.sample(rows[2], tag)) for tag in tags)
        lines.append(_difference(what, (has, f"on `{tags[0]}`"), (lacks, f"on `{tags[1]}`")))
        for tag in (None, *tags):
            told = [_effect(results.line("", r[i], r[2], tag=tag)) for r in by_size.values()]
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


def _moving(results: Results, task: str, encoder: str, size: str) -> tuple[Row | None, ...]:
    """Rows of a table that moves at the network's rate, slowly, and not at all."""
    slow = [
        results.row(task, encoder, "slow_embedding", relative_lr=rate, train_size=size)
        for rate in (SLOW, HELD)
    ]
    return results.row(task, encoder, "embedding_init", train_size=size), *slow


def _difference(what: str, above: tuple[Sample | str, str], below: tuple[Sample | str, str]) -> Line:
    """Of two gains over the same seeds; of other examples where these are of two slices, so that their
    resamples are independent."""
    one, other = above[0], below[0]
    for sample in (one, other):
        if isinstance(sample, str):
            return Line(what, above[1], below[1], None, sample)
    assert isinstance(one, Sample)
    assert isinstance(other, Sample)
    told = [f"{gain.scores.mean():+.3f} {name}" for gain, name in ((one, above[1]), (other, below[1]))]
    if one.seeds != other.seeds:
        return Line(what, told[0], told[1], None, "other seeds")
    spread = of_difference((one.scores, one.replicates), (other.scores, other.replicates), pair_seeds=True)
    return Line(what, told[0], told[1], spread, p=spread.p_value())


def _less(a: Sample | str, b: Sample | str) -> Sample | str:
    """The difference of two samples, seed by seed, as a sample."""
    if isinstance(a, str) or isinstance(b, str):
        return a if isinstance(a, str) else b
    if (a.seeds, a.digest) != (b.seeds, b.digest):
        return "other seeds or examples"
    return replace(a, scores=a.scores - b.scores, replicates=a.replicates - b.replicates)


def _effect(line: Line) -> str:
    if line.spread is None:
        return line.why
    low, high = line.spread.interval()
    return f"{line.spread.mean:+.3f} ({low:+.3f} to {high:+.3f})"


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
    results = Results(folder)
    print(markdown(adjusted(claim(results)) for claim in CLAIMS))
    print(f"{sum(len(r.complete) for r in results.rows)} cells, {spent:.0f} minutes.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
