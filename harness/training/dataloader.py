"""From examples and their windows to optimizer steps and evaluation batches."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, Dataset

from harness.data.batch import Batch
from harness.data.text import Example
from harness.data.tokens import TokenizedWindow
from harness.records.contract import checked_targets
from harness.task import Splits, Task
from harness.training.sequences import Sequences, align_rows

POOL = 4
"""Batches whose examples are sorted by length together; their order is shuffled again. Small, since where the
label goes with the length, batches of one length are batches of few labels."""


@dataclass(slots=True)
class Item:
    """One example with its aligned rows and the targets of each."""

    index: int
    example: Example
    rows: list[tuple[TokenizedWindow, ...]]
    targets: list[dict[str, np.ndarray]]

    @property
    def width(self) -> int:
        return max(len(row) for pair in self.rows for row in pair)


@dataclass(slots=True)
class Step:
    """One optimizer step, split into micro-batches, or one evaluation batch.

    Attributes:
        batches: of this rank; none where the step has fewer examples than there are ranks.
        examples: in the step, over all ranks.
        filler: how many of the last batches only keep this rank in step with the others: with FSDP every rank
            must run as many forward passes. They count for nothing.
    """

    batches: list[Batch]
    examples: int
    filler: int = 0

    @property
    def own(self) -> int:
        """Number of batches that count."""
        return len(self.batches) - self.filler

    def to(self, device: torch.device | str, **_: object) -> Step:
        """A copy on ``device``; Lightning calls this."""
        return Step([b.to(device) for b in self.batches], self.examples, self.filler)


def make_items(
    examples: Sequence[Example],
    sequences: Sequences,
    windows: list[list[TokenizedWindow]],
    *,
    task: Task | None,
) -> list[Item]:
    """Make an item per example, in the order of ``examples``; without ``task`` they have no targets."""
    items = []
    for index, example in enumerate(examples):
        rows = align_rows([windows[i] for i in sequences.numbers(example)])
        targets: list[dict[str, np.ndarray]] = [{} for _ in rows]
        if task:
            made = task.row_targets(example, [pair[-1] for pair in rows])
            targets = checked_targets(made, rows=len(rows), task=task)
        items.append(Item(index, example, rows, targets))
    return items


def step_order(items: Sequence[Item], *, batch_size: int, seed: int, epoch: int) -> list[list[int]]:
    """Item indices of each step of an epoch: shuffled, then sorted by length within pools of
    :data:`POOL` batches, then the batches shuffled. A pure function of seed and epoch."""
    rng = random.Random(f"{seed}-{epoch}")
    order = list(range(len(items)))
    rng.shuffle(order)
    steps: list[list[int]] = []
    for start in range(0, len(order), POOL * batch_size):
        pool = sorted(order[start : start + POOL * batch_size], key=lambda i: items[i].width)
        steps += [pool[i : i + batch_size] for i in range(0, len(pool), batch_size)]
    rng.shuffle(steps)
    return steps


def split_by_tokens(
    items: Sequence[Item], numbers: Sequence[int], *, max_length: int | None
) -> list[list[int]]:
    """Split a batch into micro-batches of at most ``max_length`` padded tokens (one example at least)."""
    if max_length is None:
        return [list(numbers)] if numbers else []
    out: list[list[int]] = []
    width = height = 0
    for i in sorted(numbers, key=lambda i: items[i].width):
        rows = sum(len(pair) for pair in items[i].rows)
        if out and max(width, items[i].width) * (height + rows) <= max_length:
            out[-1].append(i)
            width, height = max(width, items[i].width), height + rows
        else:
            out.append([i])
            width, height = items[i].width, rows
    return out


def collate(items: Sequence[Item], numbers: Sequence[int], pad: dict[str, float]) -> Batch:
    chosen = [items[i] for i in numbers]
    return Batch.collate([(it.index, it.example, it.rows, it.targets) for it in chosen], pad=pad)


@dataclass(frozen=True, slots=True)
class Plan:
    """Item numbers of one rank's micro-batches of a step; ``examples`` and ``filler`` as in :class:`Step`."""

    batches: list[list[int]]
    examples: int
    filler: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """Which part of each step a process takes.

    Attributes:
        rank, size: rank ``rank`` of ``size``.
        lockstep: every rank runs as many forward passes (FSDP).
    """

    rank: int = 0
    size: int = 1
    lockstep: bool = False


def train_plans(
    items: Sequence[Item], steps: Sequence[list[int]], *, max_length: int | None, share: Share = Share()
) -> list[Plan]:
    """What a rank takes of each step: every ``size``-th example, so that lengths are spread evenly. Every
    rank has as many steps.

    With two ranks the step [3, 1, 4, 5, 9] becomes [3, 4, 9] and [1, 5].
    """
    plans = []
    for numbers in steps:
        of = [
            split_by_tokens(items, numbers[rank :: share.size], max_length=max_length)
            for rank in (range(share.size) if share.lockstep else (share.rank,))
        ]
        own = of[share.rank] if share.lockstep else of[0]
        filler = max(map(len, of)) - len(own)
        plans.append(Plan([*own, *([numbers[0]] for _ in range(filler))], len(numbers), filler))
    return plans


def eval_plans(batches: Sequence[list[int]], *, share: Share = Share()) -> list[Plan]:
    """Every ``size``-th batch, each as on one device. A rank without batches gets an empty one, since every
    rank has to take part."""
    own = [Plan([batch], len(batch)) for batch in batches[share.rank :: share.size]]
    if share.lockstep and batches:
        missing = -(-len(batches) // share.size) - len(own)
        return own + [Plan([batches[0]], 0, filler=1)] * missing
    return own or ([Plan([], 0)] if share.size > 1 else [])


class _Steps(Dataset[Step]):
    """Steps of one epoch, or evaluation batches, collated on access."""

    def __init__(self, items: Sequence[Item], steps: Sequence[Plan], pad: dict[str, float]) -> None:
        self.items, self.steps, self.pad = items, steps, pad

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, n: int) -> Step:
        plan = self.steps[n]
        batches = [collate(self.items, numbers, self.pad) for numbers in plan.batches]
        return Step(batches, plan.examples, plan.filler)


@dataclass(frozen=True, slots=True)
class Batching:
    """Examples per step and per evaluation batch, maximum tokens per micro-batch, seed of the order."""

    batch_size: int
    eval_batch_size: int
    max_length: int | None
    seed: int


class HarnessData(pl.LightningDataModule):
    """Training steps in a fresh order each epoch; dev and test sorted by length.

    Steps and batches are made the same way on every rank and dealt out then. Lightning's own distributed
    sampler must stay off: it repeats rows in evaluation.

    Args:
        items: by split.
        batching: sizes and the seed of the order.
        pad: fill values of the rows' inputs.
        share: which part of each step this process takes.
    """

    def __init__(
        self,
        items: dict[str, list[Item]],
        *,
        batching: Batching,
        pad: dict[str, float],
        share: Share = Share(),
    ) -> None:
        super().__init__()
        self.items, self.batching, self.pad, self.share = items, batching, pad, share

    def train_dataloader(self) -> DataLoader[Step]:
        epoch = self.trainer.current_epoch if self.trainer else 0
        items, b = self.items["train"], self.batching
        steps = step_order(items, batch_size=b.batch_size, seed=b.seed, epoch=epoch)
        plans = train_plans(items, steps, max_length=b.max_length, share=self.share)
        return _loader(_Steps(items, plans, self.pad))

    def val_dataloader(self) -> DataLoader[Step]:
        return self.eval_loader("dev")

    def eval_loader(self, split: str) -> DataLoader[Step]:
        items, b = self.items[split], self.batching
        order = sorted(range(len(items)), key=lambda i: (-items[i].width, i))
        batches = [order[i : i + b.eval_batch_size] for i in range(0, len(order), b.eval_batch_size)]
        parts = [
            part for numbers in batches for part in split_by_tokens(items, numbers, max_length=b.max_length)
        ]
        return _loader(_Steps(items, eval_plans(parts, share=self.share), self.pad))


def _loader(steps: _Steps) -> DataLoader[Step]:
    return DataLoader(steps, batch_size=None, shuffle=False, num_workers=0)


def all_examples(splits: Splits) -> list[Example]:
    return [e for _, examples in splits.items() for e in examples]
