"""Run one cell in this process: train, select the epoch on dev, predict test once, score, record.

Nothing of Hydra is here: a :class:`harness.records.cell.Cell` is plain data.
"""

from __future__ import annotations

import os
import resource
import time
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_only

from harness.core.events import WARNING, Progress
from harness.core.files import atomic_path
from harness.core.instantiate import Component
from harness.core.provenance import git_state, host, versions
from harness.loggers.factory import current, logged
from harness.processes.distributed import ALONE, World
from harness.records.cell import Cell
from harness.records.contract import scores_of
from harness.records.predictions import Summary, write_predictions
from harness.records.record import ENGINE_VERSION, Costs, Record, write_config, write_record
from harness.strategies.strategy import Strategy
from harness.task import HasLiveMetrics, fitted_notes, fitted_part, is_unlabelled
from harness.training.assemble import Assembly, assemble
from harness.training.callbacks import BestEpochCallback, Curves, LiveMetrics, StepProgress
from harness.training.features import FeatureEncoder
from harness.training.trainer import device_name, fit, make_trainer, predict

CHECKPOINT = "model.safetensors"
UNKNOWN_SHARE = 0.1
UNKNOWN_WORDS = 0.5
"""Share of out-of-vocabulary words above which the record contains a warning."""


def run_cell(cell: Cell, progress: Progress = lambda event: None) -> Record:
    """Run ``cell`` and write its record, in this process or, on several devices, in one process per device.

    Args:
        cell: from :func:`harness.config.resolve.prepare`.
        progress: gets small dicts: ``phase``, ``done``, ``total``, ``epoch``, ``epochs``, ``score``,
            ``message``.

    Returns:
        the record, written to ``cell.folder`` together with configuration and predictions.

    Raises:
        HarnessError: bad data or a run that diverged. The caller records failures.
    """
    if cell.trainer.num_nodes > 1:
        from harness.processes.nodes import run_on_rank

        return run_on_rank(cell, progress, runner="harness.training.run:run_here")
    if cell.trainer.devices > 1:
        from harness.processes.ranks import run_ranks

        return run_ranks(cell, progress)
    torch.set_num_threads(cell.trainer.threads)
    return run_here(cell, progress, ALONE)


@logged
def run_here(cell: Cell, progress: Progress, world: World) -> Record:
    """Run one rank of a cell, or the whole cell in one process; rank 0 writes the record.

    Raises:
        HarnessError: as :func:`run_cell`.
    """
    started, begin = datetime.now(UTC), time.perf_counter()
    # Lightning derives the rank from the environment in which the sweep was started
    rank_zero: Any = rank_zero_only
    rank_zero.rank = world.rank
    if world.first:
        cell.folder.mkdir(parents=True, exist_ok=True)
        write_config(cell.folder, cell.resolved)
    pl.seed_everything(cell.seed, verbose=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        assembly = assemble(cell, progress, world)
        for text in coverage_warnings(assembly.encoding.report):
            progress({"phase": "encode", "message": f"{WARNING}{text}"})
        record = _train_and_score(cell, assembly, progress)
    # deprecation warnings do not affect results
    relevant = [w for w in caught if not issubclass(w.category, FutureWarning | DeprecationWarning)]
    record.warnings += sorted({f"{w.category.__name__}: {w.message}" for w in relevant})
    record.started, record.finished = started.isoformat(), datetime.now(UTC).isoformat()
    _close_costs(record.costs, assembly, total=time.perf_counter() - begin)
    if world.first:
        write_record(cell.folder, record)
    return record


def _train_and_score(cell: Cell, assembly: Assembly, progress: Progress) -> Record:
    config, task, splits, world = cell.trainer, assembly.task, assembly.splits, assembly.world
    choice = BestEpochCallback(
        task,
        splits.dev,
        keep=config.select,
        patience=config.patience,
        progress=progress,
        world=world,
    )
    assembly.model.check_ranks("before training")
    world.set_seed(cell.seed)
    watching = [choice, StepProgress(progress, config.epochs), *([Curves(choice)] if current() else [])]
    # on all ranks, since they reduce the metrics together; only the first rank has a logger. Values that are
    # fitted to all dev predictions are not known while the live metrics are accumulated
    part = fitted_part(task)
    live = splits.dev and cell.logger.name != "none" and part is None
    if live and isinstance(task, HasLiveMetrics):
        watching.append(LiveMetrics(task, splits.dev))
    trainer = make_trainer(cell, assembly, watching)
    begin = time.perf_counter()
    fit(trainer, assembly)
    fit_seconds = time.perf_counter() - begin
    epochs = trainer.current_epoch
    if choice.state:
        assembly.model.load_trainable_state_dict(choice.state)
    progress({"phase": "test"})
    begin = time.perf_counter()
    predicted = predict(trainer, assembly, "test")
    if part is not None:
        predicted = part.apply_fitted(predicted, choice.fitted)
    labelled = not is_unlabelled(splits.test)
    scores = world.on_first(lambda: scores_of(task, predicted, splits.test) if labelled else {})
    eval_seconds = choice.seconds + time.perf_counter() - begin
    kept = {"dev": (splits.dev, choice.predicted), "test": (splits.test, predicted)}
    counted = write_predictions(cell.folder, kept, task=task) if world.first else Summary()
    if config.save:
        save_trained(cell.folder, assembly)
    train_seconds = fit_seconds - choice.seconds
    costs = Costs(
        train_seconds=train_seconds,
        eval_seconds=eval_seconds,
        examples_per_second=len(splits.train) * epochs / max(train_seconds, 1e-9),
        slots=int(os.environ.get("HARNESS_SLOTS", "1")),
        devices=world.size,
        threads=torch.get_num_threads(),
        device=device_name(config.accelerator),
        host=host(),
    )
    record = describe(cell, assembly)
    record.dev, record.test, record.dev_history = dict(choice.scores), dict(scores), list(choice.history)
    record.epoch, record.epochs, record.costs = choice.epoch or epochs, epochs, costs
    record.metric_from_stats, record.degenerate = counted.metric_from_stats, counted.degenerate
    record.mix, record.fitted = scalar_mix_weights(assembly), choice.fitted
    record.notes += fitted_notes(choice.fitted)
    return record


def describe(cell: Cell, assembly: Assembly) -> Record:
    """Fill in the part of the record that is known before training."""
    splits, encoding = assembly.splits, assembly.encoding
    parts = list(assembly.model.parameters())
    live = sum(p.numel() for p in parts)
    cached = encoding.parameters if isinstance(encoding.encoder, FeatureEncoder) else 0
    return Record(
        status="complete",
        task=cell.task.name,
        encoder=cell.encoder.name,
        strategy=cell.strategy.name,
        cell=cell.id,
        seed=cell.seed,
        kind=assembly.task.kind,
        variant=dict(cell.variant),
        metric=assembly.task.metric,
        maximize=assembly.task.maximize,
        partial=cell.options.limit,
        n_train=len(splits.train),
        n_dev=len(splits.dev),
        n_test=len(splits.test),
        data=cell.files.get("task", "")[:12],
        parameters=live + cached,
        trained_parameters=sum(p.numel() for p in parts if p.requires_grad),
        trained_bytes=sum(p.numel() * p.element_size() for p in parts if p.requires_grad),
        coverage={**splits.report, **encoding.report},
        notes=[
            *splits.notes,
            *encoding.adapted.notes,
            *encoding_notes(encoding.report),
            *unfreezing_notes(assembly, epochs=cell.trainer.epochs),
        ],
        warnings=[*splits.warnings, *coverage_warnings(encoding.report)],
        data_card={} if splits.card is None else splits.card.to_json(),
        versions={**versions(), **result_versions(cell)},
        git=git_state(),
    )


def scalar_mix_weights(assembly: Assembly) -> dict[str, list[float]]:
    """Return the scalar mix's weights for the record; empty without a mix."""
    model, out = assembly.model, {}
    for prefix, mix in (("", model.mix), ("late_", model.late_mix)):
        if mix is not None:
            out[f"{prefix}weights"] = mix.weights
            out[f"{prefix}gamma"] = [float(mix.gamma.detach())]
    if out:
        count = len(out["weights"])
        out["layers"] = [float(i) for i in (range(count) if isinstance(model.layers, str) else model.layers)]
    return out


def result_versions(cell: Cell) -> dict[str, str]:
    """Return the result versions of the engine and of each part; a fix that changes results raises them."""
    parts: dict[str, Component | Strategy] = {
        "encoder": cell.encoder,
        "strategy": cell.strategy,
        "task": cell.task,
        "body": cell.body,
    }
    of_parts = {f"result.{name}": str(part.result_version) for name, part in parts.items()}
    return {"result.engine": str(ENGINE_VERSION), **of_parts}


def encoding_notes(report: Mapping[str, float]) -> list[str]:
    """Return notes for the record on truncated texts and deleted words."""
    notes = []
    if cut := report.get("texts_cut", 0):
        notes.append(f"{int(cut)} texts were longer than the encoder takes and were cut")
    if deleted := report.get("words_deleted", 0):
        notes.append(f"{int(deleted)} words have no token: the encoder's tokenizer deletes them")
    return notes


def coverage_warnings(report: Mapping[str, float]) -> list[str]:
    """Return a warning if the encoder does not know many tokens or words of the texts."""
    if (share := report.get("unknown_share", 0.0)) > UNKNOWN_SHARE:
        return [f"{share:.0%} of the tokens are unknown to the encoder: does it speak the language?"]
    words = report.get("words", 0)
    known = report.get("words_known", words) / words if words else 1.0
    if known < 1 - UNKNOWN_WORDS:
        return [f"{1 - known:.0%} of the words are unknown to the encoder: does it speak the language?"]
    return []


def unfreezing_notes(assembly: Assembly, *, epochs: int) -> list[str]:
    """Which layer groups of the encoder are still frozen in the last of ``epochs`` epochs."""
    strategy = assembly.model.strategy
    if strategy.unfreeze is None:
        return []
    groups = [name for name, _ in assembly.model.encoder.layer_groups()]
    frozen = groups[: len(groups) - strategy.unfrozen_groups(len(groups), epoch=epochs - 1)]
    if not frozen:
        return []
    return [
        f"{', '.join(frozen)} stayed frozen for all {epochs} epochs; increase trainer.epochs to train them"
    ]


def _close_costs(costs: Costs, assembly: Assembly, *, total: float) -> None:
    encoding = assembly.encoding
    costs.encode_seconds, costs.encode_cached = encoding.price, encoding.cached
    costs.load_seconds, costs.total_seconds = encoding.load, total
    costs.adapt_seconds = encoding.adapted.seconds
    accounted = (
        encoding.load + encoding.adapted.spent + encoding.spent + costs.train_seconds + costs.eval_seconds
    )
    costs.overhead_seconds = total - accounted
    world = assembly.world
    # ranks share the machine's memory; each device has separate memory
    costs.peak_memory_mb = sum(world.gather(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
    if torch.cuda.is_available():
        costs.peak_memory_mb = max(world.gather(torch.cuda.max_memory_allocated() / 2**20))


def save_trained(folder: Path, assembly: Assembly) -> None:
    """Save all trained weights beside the record, as safetensors."""
    from safetensors.torch import save_file

    state = assembly.model.gather_state_dict()  # every rank takes part
    if assembly.world.first:
        with atomic_path(folder / CHECKPOINT) as temporary:
            save_file({k: v.contiguous().clone() for k, v in state.items()}, temporary)


def restore(cell: Cell) -> Assembly:
    """The cell's data and model with the weights it was saved with (``trainer.save=true``).

    Raises:
        HarnessError: there are none, or they do not fit.
    """
    from safetensors.torch import load_file

    from harness.errors import HarnessError

    path = cell.folder / CHECKPOINT
    if not path.is_file():
        raise HarnessError(f"{path}: no saved weights; run the cell with trainer.save=true")
    pl.seed_everything(cell.seed, verbose=False)
    assembly = assemble(cell, lambda event: None)
    missing, unexpected = assembly.model.load_state_dict(load_file(path), strict=False)
    lost = set(missing) & set(assembly.model.trainable_state_dict())
    if lost or unexpected:
        raise HarnessError(
            f"{path}: does not fit the cell's model ({len(lost)} missing, {len(unexpected)} more)"
        )
    return assembly
