"""Inputs of a cell: its data, and fingerprints of the files that determine its id. Does not import torch."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.bodies.config import BodyConfig
from harness.core.fingerprint import files_fingerprint, signature, source_files
from harness.data.reading.card import CardExample, DataCard, make_card
from harness.data.reading.files import fingerprint as text_fingerprint
from harness.data.reading.log import ReadLog
from harness.data.text import Example
from harness.encoders.config import EncoderConfig
from harness.errors import HarnessError
from harness.records.cell import Cell
from harness.records.parts import TaskConfig
from harness.strategies.adapt import files_of
from harness.task import Splits, Task


@dataclass(slots=True)
class InputFiles:
    """Fingerprints of the files of encoder and task.

    Attributes:
        fingerprints: content digests of ``encoder`` and ``task``; line endings of texts are ignored. ``code``
            is present if a part's source lies outside this program.
        signatures: by path, taken before the file was read.
    """

    fingerprints: dict[str, str] = field(default_factory=dict)
    signatures: dict[str, tuple[int, ...]] = field(default_factory=dict)


def fingerprint_inputs(
    encoder: EncoderConfig,
    task: TaskConfig,
    body: BodyConfig | None = None,
    *,
    adapts: bool,
    cache_dir: Path,
) -> InputFiles:
    """Find and fingerprint the files of encoder and task, and the source of parts outside this program.

    Args:
        encoder, task, body: parsed sections.
        adapts: whether the encoder's pretraining is continued, which may read more files.
        cache_dir: folder of downloads.

    Raises:
        HarnessError: a file is missing or cannot be read.
    """
    out = InputFiles()
    files = encoder.files(cache_dir)
    for place, leaf in encoder.leaves() if adapts else ():
        more = files_of(leaf, cache_dir)
        files |= {"/".join((*place, role)): p for role, p in more.items() if p not in files.values()}
    out.fingerprints["encoder"] = _fingerprint(files, out, texts=False)
    # the suffix may determine how a file is read
    files = {f"{role}{_suffix(path)}": path for role, path in task.files(cache_dir).items()}
    out.fingerprints["task"] = _fingerprint(files, out, texts=True)
    if code := source_files(_targets(encoder, task, body)):
        out.fingerprints["code"] = _fingerprint(code, out, texts=False)
    return out


def _targets(encoder: EncoderConfig, task: TaskConfig, body: BodyConfig | None) -> Iterator[str]:
    """Dotted paths of everything that computes a part of the result."""
    for part in (encoder, task, *([body] if body else ()), *(leaf for _, leaf in encoder.leaves())):
        yield from (part.target, part.files_function)
    yield from (leaf.adapt.module for _, leaf in encoder.leaves() if leaf.adapt)


def _fingerprint(files: dict[str, Path], out: InputFiles, *, texts: bool) -> str:
    for path in files.values():
        with contextlib.suppress(OSError):  # reported when the file is read
            out.signatures[str(path)] = signature(path)
    return files_fingerprint(files, of=text_fingerprint if texts else None)


def _suffix(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def verify(cell: Cell) -> None:
    """Check that the cell's files have not changed since its id was computed.

    Files are read again only if their signatures differ.

    Raises:
        HarnessError: the content of a file has changed, or a file is missing.
    """
    try:
        if all(signature(Path(path)) == tuple(seen) for path, seen in cell.sources.items()):
            return
    except OSError:
        pass  # a missing file is reported below
    adapts = cell.strategy.adapt is not None
    files = fingerprint_inputs(
        cell.encoder, cell.task, cell.body, adapts=adapts, cache_dir=cell.cache_dir
    ).fingerprints
    changed = [f"the {group}'s" for group in files if files[group] != cell.files.get(group)]
    if changed:
        raise HarnessError(
            f"{' and '.join(changed)} files have changed since the sweep began; run the same command again, "
            "which gives a new cell id"
        )


def read_data(cell: Cell) -> tuple[Task, Splits]:
    """Read the cell's task and splits, and check that they can be trained on.

    Raises:
        HarnessError: data that cannot be read, an empty split, or no dev split for the choice of the epoch.
    """
    task = cell.task.build()
    splits = task.splits(limit=cell.options.limit)
    for name, examples in splits.items():
        if not examples and name != "dev":
            raise HarnessError(f"task {task.name}: the {name} split has no examples")
    if not splits.dev and cell.trainer.select == "best":
        raise HarnessError(
            f"task {task.name} has no dev split to choose the epoch on: add one, or set trainer.select=last"
        )
    if splits.card is None:
        splits.card = _card(splits)
    return task, splits


def _card(splits: Splits) -> DataCard:
    """The card of a task that makes none: texts, and labels where they are strings."""
    examples = {name: [_card_example(e) for e in part] for name, part in splits.items() if part}
    return make_card(ReadLog(notes=splits.notes, warnings=splits.warnings), examples)


def _card_example(example: Example) -> CardExample:
    labels = (example.gold,) if isinstance(example.gold, str) else ()
    gold = (json.dumps(example.gold, sort_keys=True, default=str),)
    return CardExample(tuple(text.text for text in example.texts), labels, gold=gold)
