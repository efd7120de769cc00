"""The LightningModule of a cell: encoder, scalar mix, body and head, and their optimization."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torchmetrics import MeanMetric

from harness.bodies.base import Body
from harness.data.batch import Batch
from harness.data.tokens import EncoderOutput, TokenBatch
from harness.encoders.base import Encoder
from harness.encoders.config import Layers
from harness.encoders.scalar_mix import ScalarMix
from harness.errors import HarnessError
from harness.processes.distributed import ALONE, World
from harness.processes.lightning import Sharding, gather_state_dict, local
from harness.records.contract import checked_loss, checked_outputs, checked_predictions
from harness.strategies.strategy import Strategy
from harness.task import Prediction
from harness.training.dataloader import Step
from harness.training.features import pick_layers
from harness.training.optim import check_partition, frozen_groups, lr_lambda, parameter_groups


@dataclass(frozen=True, slots=True)
class Training:
    """Hyperparameters of training: AdamW, schedule and clipping."""

    lr: float
    weight_decay: float
    betas: tuple[float, float]
    eps: float
    schedule: str
    warmup: float
    total_steps: int
    max_grad_norm: float | None


class TransferModel(pl.LightningModule):
    """encoder -> (mix) -> body -> head.

    A frozen encoder is in eval mode for good, gets no gradient and is not trained, whatever Lightning asks.

    Args:
        encoder: what was carried over, or the reader of its cached features.
        body: the task network.
        head: the task's head (an ``nn.Module`` that keeps :class:`harness.task.Head`).
        strategy: which part moves, and how fast.
        layers: ``top``, ``mix`` or a list of layers; the last two are mixed by learnt weights.
        training: rates and schedule.
        mix: options of the mix, see :class:`ScalarMix`.
        world: the ranks that train it together.
        sharding: how the parameters are divided over the ranks (FSDP); None = each rank has all.
    """

    def __init__(
        self,
        encoder: Encoder,
        body: Body,
        head: Any,
        *,
        strategy: Strategy,
        layers: Layers,
        training: Training,
        mix: Mapping[str, Any] | None = None,
        world: World = ALONE,
        sharding: Sharding | None = None,
    ) -> None:
        super().__init__()
        self.world, self.sharding = world, sharding
        self.automatic_optimization = False
        self.encoder, self.body, self.head = encoder, body, head
        self.strategy, self.layers, self.training_plan = strategy, layers, training
        self.mix: ScalarMix | None = None
        self.late_mix: ScalarMix | None = None
        if layers != "top":
            depth = encoder.num_layers + 1 if layers == "mix" else len(layers)
            self.mix = ScalarMix(depth, **(mix or {}))
            if body.features == "both":  # separate weights for each position
                self.late_mix = ScalarMix(depth, **(mix or {}))
        if strategy.frozen:
            encoder.requires_grad_(False)
        # the loss is already summed over ranks, so it must not be reduced again
        self.train_loss = MeanMetric(sync_on_compute=False)
        self.losses: list[float] = []
        self._scale = 1.0
        self.train()  # Lightning leaves modes as it finds them

    def train(self, mode: bool = True) -> TransferModel:
        super().train(mode)
        if self.strategy.frozen:
            self.encoder.eval()
        return self

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the head's outputs for a batch."""
        device = batch.tokens[0].mask.device
        with self.sharding.autocast(device) if self.sharding else contextlib.nullcontext():
            encoded = tuple(self.encode(tokens) for tokens in batch.tokens)
            return checked_outputs(self.head(self.body(encoded, batch.tokens), batch), head=self.head)

    def configure_model(self) -> None:
        """Shard the parameters over the ranks before the optimizer is made; Lightning calls this
        repeatedly."""
        if self.sharding is not None:
            self.sharding.apply(self, self.encoder)

    def encode(self, tokens: TokenBatch) -> EncoderOutput:
        """Encode one text's tokens and mix the layers."""
        encoded: EncoderOutput
        if self.strategy.frozen:
            with torch.no_grad():
                encoded = self.encoder(tokens, all_layers=self.mix is not None)
            encoded.pooler_output = None  # cached features have no pooler output either
        else:
            encoded = self.encoder(tokens, all_layers=self.mix is not None)
        if self.mix is None:
            return encoded
        reader = "mix" if "states" in tokens.inputs else self.layers  # cached features hold just these layers
        picked = pick_layers(encoded, reader)
        mixed = self.mix(picked)
        if self.body.features == "after":
            return EncoderOutput(picked[0], hidden_states=mixed[None])
        return EncoderOutput(
            mixed, hidden_states=None if self.late_mix is None else self.late_mix(picked)[None]
        )

    def training_step(self, step: Step, _: int) -> None:
        """One optimizer step over its micro-batches. The loss is the mean over the items of the whole step,
        for any number of micro-batches and ranks."""
        optimizer: Any = self.optimizers()
        optimizer.zero_grad(set_to_none=True)
        total, items = 0.0, 0
        for n, batch in enumerate(step.batches):
            loss, count = checked_loss(self.head.loss(self(batch), batch), head=self.head)
            with self._synchronising(last=n + 1 == len(step.batches)):
                self.manual_backward(self._scaled(loss, step, filler=n >= step.own))
            if n < step.own:
                total, items = total + float(loss.detach()), items + count
        if self.world.size > 1:
            if not step.batches:
                self._join_without_examples()
            total, all_items = self.world.sum([total, items])
            items = int(all_items)
        if total != total or abs(total) == float("inf"):
            if not self.trainer.global_step:  # before any step, so the learning rate is not the cause
                raise HarnessError(
                    f"the loss is {total} before any step: the encoder's weights, or its features, hold "
                    "numbers that are not finite"
                )
            raise HarnessError(
                f"diverged: the loss is {total} in epoch {self.current_epoch + 1}; lower optimizer.lr"
            )
        self._scale = step.examples / max(1, items)
        optimizer.step()
        scheduler: Any = self.lr_schedulers()
        scheduler.step()
        self.losses.append(total / max(1, items))
        self.train_loss.update(total / max(1, items), items)

    def _scaled(self, loss: Tensor, step: Step, *, filler: bool) -> Tensor:
        """The loss whose gradient a backward pass adds up; :attr:`_scale` later divides by items instead of
        examples, once the number of items over all ranks is known.

        A step of 6 examples with 9 items on 2 ranks: each rank's loss is divided by 6 and multiplied by 2,
        since DDP and FSDP take the mean over ranks, and the gradient is multiplied by 6 / 9 before clipping.
        """
        loss = loss / step.examples
        if self.world.size > 1:
            loss = loss * (0 if filler else self.world.size)
        return loss

    @contextlib.contextmanager
    def _synchronising(self, *, last: bool) -> Iterator[None]:
        """Reduce gradients over the ranks in the last micro-batch only. FSDP reduces them in each, because
        gradients that wait for the last one would be whole on every rank."""
        model = self.trainer.strategy.model if self.world.size > 1 else None
        if last or not isinstance(model, DistributedDataParallel):
            yield
        else:
            with model.no_sync():
                yield

    def _join_without_examples(self) -> None:
        """Take part in DDP's reduction with a gradient of zero: a parameter that other ranks use as well,
        since one that none uses must keep gradient None."""
        trainable = (p for m in (self.head, self) for p in m.parameters() if p.requires_grad)
        self.manual_backward(next(trainable).sum() * 0)

    def _drop_frozen_gradients(self, optimizer: Optimizer) -> None:
        """Set the gradients of groups that are still frozen to None, so that clipping and AdamW skip them.

        ``requires_grad`` stays as it is: toggling it after DDP has wrapped the model lets ranks diverge.
        """
        names = [g["name"] for g in optimizer.param_groups]
        frozen = frozen_groups(names, strategy=self.strategy, epoch=self.current_epoch)
        for group in (g for g in optimizer.param_groups if g["name"] in frozen):
            for parameter in group["params"]:
                parameter.grad = None

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Turn the gradients into those of the mean over the step's items, without frozen groups, clipped.

        Lightning has already divided by a gradient scaler's factor. The scaler looks for infinities in
        gradients that are the same on all ranks, so all ranks take the step or none does.
        """
        self._drop_frozen_gradients(optimizer)
        parameters = [p for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        if self._scale != 1.0:
            for parameter in parameters:
                parameter.grad.mul_(self._scale)
        for mix in (self.mix, self.late_mix):
            if mix is not None:
                mix.pull()
        if self.training_plan.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(parameters, self.training_plan.max_grad_norm)

    def on_train_epoch_end(self) -> None:
        self.train_loss.reset()  # Curves has logged it
        self.check_ranks(f"after epoch {self.current_epoch + 1}")

    def check_ranks(self, when: str) -> None:
        """Check that all ranks hold the same weights, unless they hold shards (FSDP).

        Args:
            when: completes the message, such as "after epoch 1".
        """
        if self.world.size > 1 and self.sharding is None:
            self.world.check_same(list(self.parameters()), when=when)

    def predict_batch(self, batch: Batch) -> list[tuple[str, Prediction]]:
        """(example id, prediction) of each example."""
        outputs = self(batch)
        outputs = {k: v.float() if v.is_floating_point() else v for k, v in outputs.items()}
        if any(bool(v.isnan().any()) for v in outputs.values()):
            raise HarnessError("diverged: the model's outputs are NaN; lower optimizer.lr")
        decoded = checked_predictions(self.head.decode(outputs, batch), batch.examples, head=self.head)
        return [(e.id, p) for e, p in zip(batch.examples, decoded, strict=True)]

    def validation_step(self, step: Step, _: int) -> None:
        predicted = [self.predict_batch(batch) for batch in step.batches]
        self.predicted.update(pair for pairs in predicted[: step.own] for pair in pairs)

    def on_validation_epoch_start(self) -> None:
        self.predicted: dict[str, Prediction] = {}

    def predict_step(self, step: Step, _: int) -> int:
        self.validation_step(step, _)
        return step.examples

    def on_predict_epoch_start(self) -> None:
        self.on_validation_epoch_start()

    def configure_optimizers(self) -> tuple[list[Optimizer], list[LRScheduler]]:
        plan = self.training_plan
        groups = parameter_groups(
            self.encoder,
            self.task_parts,
            strategy=self.strategy,
            lr=plan.lr,
            weight_decay=plan.weight_decay,
        )
        check_partition(groups, self)
        # foreach and fused kernels round differently from build to build; the default on the CPU is
        # single-tensor
        optimizer = torch.optim.AdamW(groups, betas=plan.betas, eps=plan.eps)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer,
            lambda step: lr_lambda(step, name=plan.schedule, total=plan.total_steps, warmup=plan.warmup),
        )
        return [optimizer], [schedule]

    @property
    def task_parts(self) -> Sequence[nn.Module]:
        return [m for m in (self.mix, self.late_mix, self.body, self.head) if m is not None]

    def trainable_state_dict(self) -> dict[str, Tensor]:
        """A copy of everything that is trained, and of all buffers, on the CPU, by name.

        With FSDP the tensors are this rank's shards.
        """
        state = self.state_dict()
        return {k: local(state[k]).detach().to("cpu", copy=True) for k in self._trainable_names(state)}

    def load_trainable_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load what :meth:`trainable_state_dict` gave on this rank."""
        if self.sharding is None:
            self.load_state_dict(state, strict=False)
            return
        current = self.state_dict()
        with torch.no_grad():
            for name, value in state.items():
                local(current[name]).copy_(value)

    def gather_state_dict(self) -> dict[str, Tensor]:
        """As :meth:`trainable_state_dict` with whole tensors; with FSDP every rank must call it and rank 0
        gets the result, the others nothing."""
        if self.sharding is None:
            return self.trainable_state_dict()
        state = gather_state_dict(self)
        return {k: state[k] for k in self._trainable_names(state)}

    def _trainable_names(self, state: Mapping[str, Tensor]) -> list[str]:
        names = {n for n, p in self.named_parameters() if p.requires_grad}
        names |= {n for n, _ in self.named_buffers()}
        return [k for k in state if k in names]
