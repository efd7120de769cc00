"""The Lightning trainer of a cell: devices, fitting and prediction."""

from __future__ import annotations

import logging
import os
import warnings

import pytorch_lightning as pl
import torch

from harness.loggers.factory import current
from harness.processes.devices import pick_device
from harness.processes.lightning import ExistingRanks, make_strategy
from harness.records.cell import Cell
from harness.task import Prediction
from harness.training.assemble import Assembly

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


def make_trainer(cell: Cell, assembly: Assembly, callbacks: list[pl.Callback]) -> pl.Trainer:
    """A Lightning trainer that prints nothing and writes nothing.

    With several ranks each process makes one; Lightning's strategy (:mod:`harness.processes.lightning`)
    reduces the gradients over ranks that exist already.
    """
    config, world = cell.trainer, assembly.world
    sharded = assembly.model.sharding is not None
    if world.size > 1:
        # otherwise Lightning resets the generators to this seed when training starts
        os.environ.pop("PL_GLOBAL_SEED", None)
    return pl.Trainer(
        accelerator=config.accelerator,
        devices=world.size // world.num_nodes,
        num_nodes=world.num_nodes,
        strategy=make_strategy(world, config.strategy),
        plugins=[ExistingRanks(world)] if world.size > 1 else None,
        precision="32-true" if sharded else config.precision,
        inference_mode=not sharded,
        max_epochs=config.epochs,
        logger=current(),
        callbacks=callbacks,
        default_root_dir=str(cell.folder),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        reload_dataloaders_every_n_epochs=1,
        use_distributed_sampler=False,
        limit_val_batches=1.0 if assembly.splits.dev else 0,
        log_every_n_steps=1,  # unused, but a number above the steps of an epoch is a warning
    )


def fit(trainer: pl.Trainer, assembly: Assembly) -> None:
    """Train. Warnings that do not apply are ignored: a frozen encoder is in eval mode on purpose, and the
    loss that each rank logs is that over all ranks already."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Found .* module\(s\) in eval mode")
        warnings.filterwarnings("ignore", message=r"It is recommended to use `self\.log")
        # FSDP's root keeps its parameters gathered, so views in its outputs do no harm
        warnings.filterwarnings("ignore", message=r"FSDP2-wrapped module \(FSDPTransferModel\)")
        trainer.fit(assembly.model, datamodule=assembly.data)


def predict(trainer: pl.Trainer, assembly: Assembly, split: str) -> dict[str, Prediction]:
    """One prediction per example of a split, by example id, on rank 0, which scores them."""
    trainer.predict(assembly.model, dataloaders=assembly.data.eval_loader(split), return_predictions=False)
    return assembly.world.collect(assembly.model.predicted)


def device_name(accelerator: str) -> str:
    device = pick_device(accelerator)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
