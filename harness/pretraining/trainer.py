"""Training an objective under Lightning: rates from the share of the budget used, progress, checkpoints.

Every random number is a function of seed and step: batches come from (seed, epoch), and torch's generator is
set from (seed, step) before each step. So a checkpoint needs no generator's state, and a run that was killed
and is taken up again ends, on a CPU, with the bits of one that was not; unless the budget is in seconds,
since then the rates follow the clock.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn

from harness.errors import HarnessError
from harness.pretraining.base import Batch, Budget, Objective, Outcome, Run, Seen
from harness.pretraining.checkpoint_callback import Checkpoints, step_of
from harness.pretraining.distributed import Step, minimised, share, share_carry, together, whole_carry
from harness.pretraining.loggers import Log
from harness.processes.devices import pick_device
from harness.processes.distributed import ALONE

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
SMOOTHING = 0.98
Item = tuple[Batch, int, int]
"""A batch, its epoch, and its number in it."""


def step_seed(seed: int, step: int) -> int:
    """Seed of torch's generator for a step; step -1 is building the model."""
    return int(np.random.SeedSequence([seed, step + 1]).generate_state(1, np.uint64)[0] >> np.uint64(1))


class Stream:
    """Batches of pass after pass, without end, from the place that the module has reached; of each what this
    rank takes of it."""

    def __init__(self, objective: Objective, module: PretrainModule, seed: int) -> None:
        self.objective, self.module, self.seed = objective, module, seed

    def __iter__(self) -> Iterator[Item]:
        epoch, first = self.module.place
        while True:
            empty = True
            for index, batch in enumerate(self.objective.batches(seed=self.seed, epoch=epoch)):
                empty = False
                if index >= first:
                    yield share(self.objective, batch, self.module.world), epoch, index
            if empty:
                raise HarnessError("corpus: too little text to fill a batch")
            epoch, first = epoch + 1, 0

    # Lightning asks a loader for these; the place lies with the module's own state
    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class PretrainModule(pl.LightningModule):
    """An objective and its model.

    Attributes:
        seen: what training has consumed.
        place: epoch, and batches of it that are done.
        carry: state from the last batch.
        smooth: mean loss per predicted token, smoothed.
    """

    def __init__(self, objective: Objective, model: nn.Module, run: Run, budget: Budget) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.objective, self.model, self.budget = objective, model, budget
        self.seed, self.say, self.world = run.seed, run.say, run.world or ALONE
        self.log_seconds = float(run.trainer.get("log_seconds") or math.inf)
        self.seen, self.place, self.carry, self.smooth = Seen(), (0, 0), None, math.nan
        self._clock = self._told = time.perf_counter()
        self._whole_carry: Any = None

    @property
    def used(self) -> float:
        return self.budget.used(self.seen, tokens_per_epoch=self.objective.tokens_per_epoch)

    def on_train_start(self) -> None:
        self.world.check_same(list(self.parameters()), when="before training")
        self._clock = self._told = self.world.on_first(time.perf_counter)

    def on_train_end(self) -> None:
        self.world.check_same(list(self.parameters()), when="after training")

    def bring_together(self) -> None:
        """Before a state is kept: what each rank carries goes into it. Every rank must ask."""
        self._whole_carry = whole_carry(self.carry, self.world)

    def transfer_batch_to_device(self, batch: Item, device: torch.device, dataloader_idx: int) -> Item:
        its, epoch, index = batch
        tensors = {k: v.to(device) for k, v in its.tensors.items()}
        return dataclasses.replace(its, tensors=tensors), epoch, index

    def training_step(self, item: Item, _: int) -> None:
        batch, epoch, index = item
        seed = step_seed(self.seed, self.seen.steps)
        torch.manual_seed(seed)
        self.world.set_seed(seed)
        optimizer: Any = self.optimizers()
        rate = self.objective.recipe.lr * self.objective.recipe.factor(self.used) * batch.rate
        for group in optimizer.param_groups:
            group["lr"] = rate * group.get("factor", 1.0)
        optimizer.zero_grad(set_to_none=True)
        carry = None if batch.fresh else self.carry
        loss = self.objective.loss(self.model, batch, carry) if batch.tensors else None
        step = together(loss, self.world)
        self._refuse_infinite(step)
        self.manual_backward(minimised(loss, step, self.world, device=self.device))
        # before a gradient scaler looks for infinities: all ranks take the step or none does
        self.world.add_gradients([p for group in optimizer.param_groups for p in group["params"]])
        optimizer.step()
        now = self.world.on_first(time.perf_counter)
        self.seen = self.seen.add(tokens=batch.tokens, words=batch.words, seconds=now - self._clock)
        self._clock, self.place, self.carry = now, (epoch, index + 1), loss.carry if loss else None
        self._tell(step, rate, now, more=loss.more if loss else {})
        if self.used >= 1:
            self.trainer.should_stop = True

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        if self.objective.recipe.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.objective.recipe.max_grad_norm)

    def configure_optimizers(self) -> Any:
        recipe = self.objective.recipe
        groups = []
        for its, factor in self.objective.speeds(self.model):
            moving = [p for p in its if p.requires_grad]
            matrices, rest = [p for p in moving if p.ndim > 1], [p for p in moving if p.ndim <= 1]
            groups += [
                {"params": matrices, "weight_decay": recipe.weight_decay, "factor": factor},
                {"params": rest, "weight_decay": 0.0, "factor": factor},
            ]
        return torch.optim.AdamW(groups, lr=recipe.lr, betas=recipe.betas, eps=recipe.eps)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        s = self.seen
        checkpoint["pretraining"] = {
            "seen": (s.tokens, s.words, s.steps, s.seconds),
            "place": self.place,
            "carry": self._whole_carry,
            "smooth": self.smooth,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        state = checkpoint["pretraining"]
        self.seen, self.place = Seen(*state["seen"]), tuple(state["place"])
        self.carry = _to(share_carry(state["carry"], self.world), self.device)
        self.smooth = state["smooth"]

    def _refuse_infinite(self, loss: Step) -> None:
        if not math.isfinite(loss.nll) and not self.seen.steps:
            raise HarnessError(f"the loss is {loss.nll} before any step: the weights hold no finite numbers")
        if not math.isfinite(loss.nll):
            raise HarnessError(
                f"diverged: the loss is {loss.nll} at step {self.seen.steps}; lower {self.objective.rate_key}"
            )

    def _tell(self, loss: Step, rate: float, now: float, *, more: Mapping[str, float]) -> None:
        mean = loss.nll / max(1, loss.predicted)
        weight = min(SMOOTHING, 1 - 1 / self.seen.steps)
        self.smooth = mean if math.isnan(self.smooth) else weight * self.smooth + (1 - weight) * mean
        self.log_dict({"loss": mean, "rate": rate, "tokens": float(self.seen.tokens), **more})
        if now - self._told >= self.log_seconds:
            self._told = now
            speed = self.seen.tokens / max(1e-9, self.seen.seconds)
            self.say(
                f"{self.used:4.0%}  step {self.seen.steps}  epoch {self.place[0] + 1}  "
                f"loss {self.smooth:.3f}  rate {rate:.1e}  {self.seen.tokens:,} tokens  "
                f"{speed:,.0f}/s  {self.seen.seconds:.0f} s"
            )


def _to(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    return type(value)(_to(v, device) for v in value) if isinstance(value, list | tuple) else value


def pretrain(objective: Objective, run: Run) -> Outcome:
    """Prepare, train within the budget, measure, save; continues from the last good checkpoint in
    ``run.work``.

    Raises:
        HarnessError: the corpus or an option does not do, or the loss is no number.
    """
    if run.trainer.get("threads"):
        torch.set_num_threads(int(run.trainer["threads"]))
    device = pick_device(str(run.trainer.get("accelerator", "auto")))
    if device.type == "cpu" and run.trainer.get("precision") == "16-mixed":
        raise HarnessError("trainer.precision=16-mixed: not on a CPU; give bf16-mixed or 32-true")
    begin = time.perf_counter()
    objective.prepare(run.corpus, seed=run.seed)
    run.say(
        f"{objective.vocabulary_size():,} tokens, {objective.tokens_per_epoch:,} tokens a pass, "
        f"prepared in {time.perf_counter() - begin:.0f} s"
    )
    torch.manual_seed(step_seed(run.seed, -1))
    model = objective.build()
    budget = run.budget.or_epochs(objective.recipe.epochs)
    module = PretrainModule(objective, model, run, budget)
    log = Log(run)
    try:
        if module.used < 1:
            fit(module, Stream(objective, module, run.seed), run, log=log)
        outcome = _finished(module, run)
    except BaseException as e:
        log.close(None, e)
        raise
    log.close(outcome)
    return outcome


def _finished(module: PretrainModule, run: Run) -> Outcome:
    """Measured and saved, by the first rank."""
    objective, model = module.objective, module.model.eval()
    with torch.no_grad():
        held = objective.held_out(model) if run.corpus.held_out and module.world.first else None
    if module.world.first:
        objective.save(model, run.folder)
    return Outcome(
        seen=module.seen,
        epochs=module.seen.tokens / max(1, objective.tokens_per_epoch),
        parameters=sum(p.numel() for p in model.parameters()),
        encoder_parameters=objective.encoder_parameters(model),
        vocabulary=objective.vocabulary_size(),
        held_out=held,
        loss=module.smooth,
        notes=list(objective.notes),
    )


def fit(
    module: PretrainModule,
    stream: Stream,
    run: Run,
    *,
    callbacks: Sequence[pl.Callback] = (),
    log: Log | None = None,
) -> None:
    """Train until the budget is used up, from the last good checkpoint in ``run.work``."""
    checkpoints = Checkpoints(run.work, seconds=float(run.trainer.get("checkpoint_seconds", 60.0)))
    last = module.world.on_first(lambda: checkpoints.newest(say=run.say))
    if last is not None:
        run.say(f"continues from {last.name}")
    trainer = pl.Trainer(
        accelerator=run.trainer.get("accelerator", "auto"),
        devices=run.trainer.get("devices", 1),
        precision=run.trainer.get("precision", "32-true"),
        max_epochs=-1,
        logger=log.lightning(step=step_of(last)) if log and module.world.first else False,
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
        if trainer.interrupted:
            raise KeyboardInterrupt from None
        raise
