"""From a resolved cell to the objects that run: data, encoder or its cached features, model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from harness.bodies.base import Body
from harness.config.resolve import read_data, verify
from harness.core.events import Progress
from harness.core.instantiate import META, build
from harness.encoders.base import Encoder
from harness.processes.devices import pick_device
from harness.processes.distributed import ALONE, World
from harness.processes.lightning import make_sharding
from harness.records.cell import Cell
from harness.strategies.strategy import Strategy
from harness.task import HeadInput, Splits, Task
from harness.training.dataloader import Batching, HarnessData, Item, Share, all_examples, make_items
from harness.training.encoding import Encoding, encode, make_adapter
from harness.training.module import Training, TransferModel
from harness.training.optim import Rates, total_steps
from harness.training.sequences import Sequences


@dataclass(slots=True)
class Assembly:
    """Everything a cell needs to train and predict."""

    task: Task
    splits: Splits
    encoding: Encoding
    items: dict[str, list[Item]]
    data: HarnessData
    model: TransferModel
    world: World = ALONE


def assemble(cell: Cell, progress: Progress, world: World = ALONE) -> Assembly:
    """Read the data, load or recall the encoder, build the model. The global seed must be set."""
    config = cell.config
    progress({"phase": "read"})
    pick_device(config["trainer"]["accelerator"])
    verify(cell)
    task, splits = read_data(cell)
    sequences = Sequences.of(all_examples(splits), joint=config["encoder"]["pairs"] == "joint")
    with world.first_ahead():
        encoding = encode(cell, task, sequences, progress, adapter=make_adapter(cell, splits, progress))
    # whether features came from the cache must not move the generator that initialises the task's weights
    torch.manual_seed(cell.seed)
    items = {
        name: make_items(examples, sequences, encoding.windows, task=task if name == "train" else None)
        for name, examples in splits.items()
    }
    model = build_model(cell, task, encoding.encoder, n_train=len(splits.train), world=world)
    trainer = config["trainer"]
    batching = Batching(
        batch_size=trainer["batch_size"],
        eval_batch_size=trainer["eval_batch_size"],
        max_length=trainer["max_tokens_per_batch"],
        seed=cell.seed,
    )
    share = Share(world.rank, world.size, lockstep=model.sharding is not None)
    data = HarnessData(items, batching=batching, pad=encoding.pad, share=share)
    return Assembly(task, splits, encoding, items, data, model, world)


def build_model(
    cell: Cell, task: Task, encoder: Encoder, *, n_train: int, world: World = ALONE
) -> TransferModel:
    """Body, head and training plan around an encoder; weights from torch's global generator."""
    config = cell.config
    options = {k: v for k, v in config["body"].items() if k not in (*META, "name")}
    body: Body = build({"_target_": config["body"]["_target_"], **options}, encoder.hidden_size)
    strategy = Strategy.from_config(config["strategy"])
    pooled = body.pooling is None and encoder.has_pooler and not strategy.frozen
    pairs = config["encoder"]["pairs"] if task.n_texts == 2 else "single"
    head = task.head(
        HeadInput(
            hidden_size=body.hidden_size,
            pooling=body.pooling or encoder.pooling,
            pooled=pooled and config["encoder"]["layers"] == "top",
            pairs=pairs,
            dropout=config["trainer"]["dropout"],
        )
    )
    model = TransferModel(
        encoder,
        body,
        head,
        strategy=strategy,
        layers=config["encoder"]["layers"],
        mix=config["encoder"].get("mix"),
        training=training_plan(config, n_train=n_train),
        world=world,
        sharding=make_sharding(world, config["trainer"]),
    )
    if config["trainer"]["gradient_checkpointing"]:
        encoder.gradient_checkpointing()
    return model


def training_plan(config: dict[str, Any], *, n_train: int) -> Training:
    optimizer, trainer = config["optimizer"], config["trainer"]
    return Training(
        rates=Rates(lr=optimizer["lr"], weight_decay=optimizer["weight_decay"]),
        betas=(optimizer["betas"][0], optimizer["betas"][1]),
        eps=optimizer["eps"],
        schedule=config["schedule"]["name"],
        warmup=config["schedule"]["warmup"],
        total_steps=total_steps(n_train, trainer["batch_size"], trainer["epochs"]),
        max_grad_norm=optimizer["max_grad_norm"],
    )
