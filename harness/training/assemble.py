"""From a resolved cell to the objects that run: data, encoder or its cached features, model."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch

from harness.core.events import Progress
from harness.encoders.base import Encoder
from harness.processes.devices import pick_device
from harness.processes.distributed import ALONE, World
from harness.processes.lightning import make_sharding
from harness.records.cell import Cell
from harness.records.inputs import read_data, verify
from harness.task import HeadInput, Splits, Task
from harness.training.dataloader import Batching, HarnessData, Item, Share, all_examples, make_items
from harness.training.encoding import Encoding, encode, make_adapter
from harness.training.module import Training, TransferModel
from harness.training.optim import total_steps
from harness.training.sequences import Sequences


@dataclass(slots=True)
class Assembly:
    """Everything that a cell needs to train and predict.

    Attributes:
        items: examples with their windows, by split.
        world: the ranks that run the cell together.
    """

    task: Task
    splits: Splits
    encoding: Encoding
    items: dict[str, list[Item]]
    data: HarnessData
    model: TransferModel
    world: World = ALONE


def assemble(cell: Cell, progress: Progress, world: World = ALONE) -> Assembly:
    """Read the data, load the encoder or its cached features, build the model.

    Torch's global seed must be set.

    Raises:
        HarnessError: data, files or options that cannot be used.
    """
    progress({"phase": "read"})
    pick_device(cell.trainer.accelerator)
    verify(cell)
    task, splits = read_data(cell)
    sequences = Sequences.of(all_examples(splits), joint=cell.encoder.pairs == "joint")
    with world.first_ahead():
        encoding = encode(cell, task, sequences, progress, adapter=make_adapter(cell, splits, progress))
    # a cache hit draws no random numbers: seed again, so that the task's weights do not depend on it
    torch.manual_seed(cell.seed)
    items = {
        name: make_items(examples, sequences, encoding.windows, task=task if name == "train" else None)
        for name, examples in splits.items()
    }
    model = build_model(cell, task, encoding.encoder, n_train=len(splits.train), world=world)
    batching = Batching(
        batch_size=cell.trainer.batch_size,
        eval_batch_size=cell.trainer.eval_batch_size,
        max_length=cell.trainer.max_tokens_per_batch,
        seed=cell.seed,
    )
    share = Share(world.rank, world.size, lockstep=model.sharding is not None)
    data = HarnessData(items, batching=batching, pad=encoding.pad, share=share)
    return Assembly(task, splits, encoding, items, data, model, world)


def build_model(
    cell: Cell, task: Task, encoder: Encoder, *, n_train: int, world: World = ALONE
) -> TransferModel:
    """Build body, head and training plan around an encoder; weights come from torch's global generator.

    Args:
        n_train: training examples, for the length of the schedule.
    """
    body = cell.body.build(encoder.hidden_size)
    layers = cell.encoder.layers
    pooled = body.pooling is None and encoder.has_pooler and not cell.strategy.frozen
    head = task.head(
        HeadInput(
            hidden_size=body.hidden_size,
            pooling=body.pooling or encoder.pooling,
            pooled=pooled and layers == "top",
            pairs=cell.encoder.pairs if task.n_texts == 2 else "single",
            dropout=cell.trainer.dropout,
        )
    )
    model = TransferModel(
        encoder,
        body,
        head,
        strategy=cell.strategy,
        layers=layers,
        mix=asdict(cell.encoder.mix) if cell.encoder.mix is not None else None,
        training=training_plan(cell, n_train=n_train),
        world=world,
        sharding=make_sharding(world, cell.trainer),
    )
    if cell.trainer.gradient_checkpointing:
        encoder.gradient_checkpointing()
    return model


def training_plan(cell: Cell, *, n_train: int) -> Training:
    """Optimizer and schedule of a run over ``n_train`` examples."""
    optimizer, trainer = cell.optimizer, cell.trainer
    return Training(
        lr=optimizer.lr,
        weight_decay=optimizer.weight_decay,
        betas=(optimizer.betas[0], optimizer.betas[1]),
        eps=optimizer.eps,
        schedule=cell.schedule.name,
        warmup=cell.schedule.warmup,
        total_steps=total_steps(n_train, trainer.batch_size, trainer.epochs),
        max_grad_norm=optimizer.max_grad_norm,
    )
