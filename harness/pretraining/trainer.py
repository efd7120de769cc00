"""Training of an objective under Lightning: learning rates, progress, checkpoints.

Every random number is a function of seed and step: batches depend on (seed, epoch), and torch's generator is
reseeded from (seed, step) before each step. A checkpoint therefore needs no generator state, and on a CPU an
interrupted run that resumes ends bit-identical to an uninterrupted one, unless the budget is in seconds,
because then the learning rates follow the clock.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.core.optimizer import LightningOptimizer
from torch import nn

from harness.core.optimization import split_weight_decay
from harness.errors import HarnessError
from harness.pretraining.base import AnyObjective, Outcome, Run, TrainingBatch
from harness.pretraining.budget import Budget, TrainingProgress
from harness.pretraining.checkpoint_callback import PeriodicCheckpoints, step_of
from harness.pretraining.distributed import (
    Carry,
    StepLoss,
    carry_to,
    combine_losses,
    ddp_loss,
    gather_carry,
    shard,
    shard_carry,
)
from harness.pretraining.loggers import PretrainLogger
from harness.processes.devices import pick_device
from harness.processes.distributed import ALONE, World
from harness.processes.lightning import ExistingRanks, make_strategy

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
SMOOTHING = 0.98
"""Decay of the moving average of the displayed loss."""
Item: TypeAlias = tuple[TrainingBatch, int, int]
"""A batch, its epoch, and its number in the epoch."""


def step_seed(seed: int, step: int) -> int:
    """Seed of torch's generator for a step; step -1 initialises the model."""
    return int(np.random.SeedSequence([seed, step + 1]).generate_state(1, np.uint64)[0] >> np.uint64(1))


class BatchStream:
    """Endless batches of epoch after epoch from the module's position on; each is this rank's part."""

    def __init__(self, objective: AnyObjective, module: PretrainModule, seed: int) -> None:
        self.objective, self.module, self.seed = objective, module, seed

    def __iter__(self) -> Iterator[Item]:
        epoch, first = self.module.position
        while True:
            empty = True
            for index, batch in enumerate(self.objective.batches(seed=self.seed, epoch=epoch)):
                empty = False
                # a resumed run draws the batches that are already done again and skips them
                if index >= first:
                    yield shard(self.objective, batch, self.module.world), epoch, index
            if empty:
                raise HarnessError("corpus: too little text to fill a batch")
            epoch, first = epoch + 1, 0

    # Lightning requires both of a stateful loader; the position is part of the module's checkpoint
    def state_dict(self) -> dict[str, object]:
        return {}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        pass


class PretrainModule(pl.LightningModule):
    """Training loop of an objective.

    Attributes:
        progress: what training has consumed.
        position: epoch, and number of its batches that are done.
        carry: state from the last batch.
        smooth_loss: moving average of the loss per predicted token.
    """

    def __init__(self, objective: AnyObjective, model: nn.Module, run: Run, budget: Budget) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.objective, self.model, self.budget = objective, model, budget
        self.seed, self.report = run.seed, run.report
        self.world: World = run.world or ALONE
        self.log_seconds = float(run.trainer.get("log_seconds") or math.inf)
        self.progress, self.position, self.smooth_loss = TrainingProgress(), (0, 0), math.nan
        self.carry: Carry = None
        self._clock = self._reported = time.perf_counter()
        self._gathered_carry: Carry = None

    @property
    def budget_used(self) -> float:
        return self.budget.used(self.progress, tokens_per_epoch=self.objective.tokens_per_epoch)

    def setup(self, stage: str) -> None:
        # before DDP copies rank 0's weights to the others, which would hide a difference
        self.world.check_same(list(self.parameters()), when="before training")

    def on_train_start(self) -> None:
        self._clock = self._reported = self.world.on_first(time.perf_counter)

    def on_train_end(self) -> None:
        self.world.check_same(list(self.parameters()), when="after training")

    def gather_state(self) -> None:
        """Collect the carried state of all ranks before a checkpoint; called on every rank."""
        self._gathered_carry = gather_carry(self.carry, self.world)

    def transfer_batch_to_device(self, batch: Item, device: torch.device, dataloader_idx: int) -> Item:
        inputs, epoch, index = batch
        tensors = {k: v.to(device) for k, v in inputs.tensors.items()}
        return dataclasses.replace(inputs, tensors=tensors), epoch, index

    def training_step(self, item: Item, _: int) -> None:
        batch, epoch, index = item
        self._seed_generators()
        optimizer = self.optimizers()
        assert isinstance(optimizer, LightningOptimizer)
        lr = self._set_learning_rates(optimizer, batch)
        optimizer.zero_grad(set_to_none=True)
        carry = None if batch.resets_carry else self.carry
        loss = self.objective.loss(self.model, batch, carry) if batch.tensors else None
        step = combine_losses(loss, self.world)
        self._check_finite(step)
        # DDP reduces the gradients here, before a gradient scaler looks for infinities: all ranks take the
        # step or none does
        self.manual_backward(ddp_loss(loss, step, self.world, model=self.model))
        optimizer.step()
        now = self.world.on_first(time.perf_counter)
        self.progress = self.progress.add(tokens=batch.tokens, words=batch.words, seconds=now - self._clock)
        self._clock, self.position, self.carry = now, (epoch, index + 1), loss.carry if loss else None
        self._log_step(step, lr, now, metrics=loss.metrics if loss else {})
        if self.budget_used >= 1:
            self.trainer.should_stop = True

    def _seed_generators(self) -> None:
        seed = step_seed(self.seed, self.progress.steps)
        torch.manual_seed(seed)
        self.world.set_seed(seed)

    def _set_learning_rates(self, optimizer: LightningOptimizer, batch: TrainingBatch) -> float:
        recipe = self.objective.recipe
        lr = recipe.lr * recipe.lr_factor(self.budget_used) * batch.lr_factor
        for group in optimizer.param_groups:
            group["lr"] = lr * group.get("factor", 1.0)
        return lr

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        if self.objective.recipe.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.objective.recipe.max_grad_norm)

    def configure_optimizers(self) -> torch.optim.AdamW:
        recipe = self.objective.recipe
        groups: list[dict[str, object]] = []
        for parameters, factor in self.objective.param_groups(self.model):
            matrices, vectors = split_weight_decay(parameters)
            groups += [
                {"params": matrices, "weight_decay": recipe.weight_decay, "factor": factor},
                {"params": vectors, "weight_decay": 0.0, "factor": factor},
            ]
        return torch.optim.AdamW(groups, lr=recipe.lr, betas=recipe.betas, eps=recipe.eps)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        p = self.progress
        checkpoint["pretraining"] = {
            "seen": (p.tokens, p.words, p.steps, p.seconds),
            "place": self.position,
            "carry": self._gathered_carry,
            "smooth": self.smooth_loss,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        state = checkpoint["pretraining"]
        self.progress, self.position = TrainingProgress(*state["seen"]), tuple(state["place"])
        self.carry = carry_to(shard_carry(state["carry"], self.world), self.device)
        self.smooth_loss = state["smooth"]

    def _check_finite(self, loss: StepLoss) -> None:
        if math.isfinite(loss.nll):
            return
        if not self.progress.steps:
            raise HarnessError(f"the loss is {loss.nll} before any step: the weights are not finite")
        raise HarnessError(
            f"diverged: the loss is {loss.nll} at step {self.progress.steps}; lower {self.objective.rate_key}"
        )

    def _log_step(self, loss: StepLoss, lr: float, now: float, *, metrics: Mapping[str, float]) -> None:
        mean = loss.nll / max(1, loss.predicted)
        # 1 - 1/n makes the first steps a plain mean, so that the average does not start from zero
        weight = min(SMOOTHING, 1 - 1 / self.progress.steps)
        self.smooth_loss = (
            mean if math.isnan(self.smooth_loss) else weight * self.smooth_loss + (1 - weight) * mean
        )
        self.log_dict({"loss": mean, "rate": lr, "tokens": float(self.progress.tokens), **metrics})
        if now - self._reported >= self.log_seconds:
            self._reported = now
            speed = self.progress.tokens / max(1e-9, self.progress.seconds)
            self.report(
                f"{self.budget_used:4.0%}  step {self.progress.steps}  epoch {self.position[0] + 1}  "
                f"loss {self.smooth_loss:.3f}  lr {lr:.1e}  {self.progress.tokens:,} tokens  "
                f"{speed:,.0f}/s  {self.progress.seconds:.0f} s"
            )


def train(objective: AnyObjective, run: Run) -> Outcome:
    """Prepare, train within the budget, evaluate and save.

    Resumes from the newest intact checkpoint in ``run.work``.

    Raises:
        HarnessError: an unusable corpus or option, or a loss that is not finite.
    """
    if threads := run.trainer.get("threads"):
        torch.set_num_threads(int(threads))
    device = pick_device(str(run.trainer.get("accelerator", "auto")))
    if device.type == "cpu" and run.trainer.get("precision") == "16-mixed":
        raise HarnessError("trainer.precision=16-mixed: not available on a CPU; use bf16-mixed or 32-true")
    begin = time.perf_counter()
    objective.prepare(run.corpus, seed=run.seed)
    run.report(
        f"vocabulary of {objective.vocabulary_size():,}, {objective.tokens_per_epoch:,} tokens per epoch, "
        f"prepared in {time.perf_counter() - begin:.0f} s"
    )
    torch.manual_seed(step_seed(run.seed, -1))
    model = objective.build()
    module = PretrainModule(objective, model, run, run.budget.or_epochs(objective.recipe.epochs))
    logger = PretrainLogger(run)
    try:
        if module.budget_used < 1:
            fit(module, BatchStream(objective, module, run.seed), run, logger=logger)
        outcome = _evaluate_and_save(module, run)
    except BaseException as e:
        logger.close(None, e)
        raise
    logger.close(outcome)
    return outcome


def _evaluate_and_save(module: PretrainModule, run: Run) -> Outcome:
    """Evaluate and save on the first rank."""
    objective, model = module.objective, module.model.eval()
    with torch.no_grad():
        held_out = objective.evaluate(model) if run.corpus.held_out and module.world.first else None
    if module.world.first:
        objective.save(model, run.folder)
    return Outcome(
        progress=module.progress,
        epochs=module.progress.tokens / max(1, objective.tokens_per_epoch),
        parameters=sum(p.numel() for p in model.parameters()),
        encoder_parameters=objective.encoder_parameters(model),
        vocabulary=objective.vocabulary_size(),
        held_out=held_out,
        loss=module.smooth_loss,
        notes=list(objective.notes),
    )


def fit(
    module: PretrainModule,
    stream: BatchStream,
    run: Run,
    *,
    callbacks: Sequence[pl.Callback] = (),
    logger: PretrainLogger | None = None,
) -> None:
    """Train until the budget is used, from the newest intact checkpoint in ``run.work``."""
    checkpoints = PeriodicCheckpoints(run.work, seconds=float(run.trainer.get("checkpoint_seconds", 60.0)))
    last = module.world.on_first(lambda: checkpoints.newest(report=run.report))
    if last is not None:
        run.report(f"continues from {last.name}")
    world = module.world
    if world.size > 1:
        # otherwise Lightning resets the generators to this seed when training starts
        os.environ.pop("PL_GLOBAL_SEED", None)
    trainer = pl.Trainer(
        accelerator=run.trainer.get("accelerator", "auto"),
        devices=run.trainer.get("devices", 1),
        strategy=make_strategy(world, "ddp"),
        plugins=[ExistingRanks(world)] if world.size > 1 else None,
        use_distributed_sampler=False,
        precision=run.trainer.get("precision", "32-true"),  # type: ignore[arg-type]
        max_epochs=-1,
        logger=logger.open(step=step_of(last)) if logger and module.world.first else False,
        callbacks=[checkpoints, *callbacks],
        default_root_dir=str(run.work),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        log_every_n_steps=10,
    )
    try:
        trainer.fit(module, train_dataloaders=stream, ckpt_path=None if last is None else str(last))
    except SystemExit:
        # Lightning turns Ctrl-C into an exit
        if trainer.interrupted:
            raise KeyboardInterrupt from None
        raise
