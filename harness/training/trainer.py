"""The Lightning trainer of a cell: devices, fitting and prediction."""

from __future__ import annotations

import logging
import warnings

import pytorch_lightning as pl
import torch

from harness.loggers.factory import current
from harness.processes.devices import pick_device
from harness.processes.distributed import World
from harness.records.cell import Cell
from harness.task import Prediction
from harness.training.assemble import Assembly

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


def make_trainer(cell: Cell, assembly: Assembly, callbacks: list[pl.Callback]) -> pl.Trainer:
    """A Lightning trainer that prints nothing and keeps nothing but what it is told to. Each rank has one,
    and it knows of no other: what ranks share goes through :class:`harness.processes.distributed.World`."""
    config = cell.config["trainer"]
    return pl.Trainer(
        accelerator=config["accelerator"],
        devices=_trainer_devices(config["accelerator"], assembly.world),
        precision=config["precision"],
        max_epochs=config["epochs"],
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
        log_every_n_steps=50,
    )


def _trainer_devices(accelerator: str, world: World) -> int | list[int]:
    """One device: of several CUDA devices this rank's."""
    return [world.rank] if world.size > 1 and pick_device(accelerator).type == "cuda" else 1


def fit(trainer: pl.Trainer, assembly: Assembly) -> None:
    """Train. That a frozen encoder is in eval mode is what it is there for, and no reason for a warning; nor
    that ranks log a loss by themselves, since each is told that over all."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Found .* module\(s\) in eval mode")
        warnings.filterwarnings("ignore", message=r"It is recommended to use `self\.log")
        trainer.fit(assembly.model, datamodule=assembly.data)


def predict(trainer: pl.Trainer, assembly: Assembly, split: str) -> dict[str, Prediction]:
    """One prediction for each example of a split, by example id; on the first rank, which scores them."""
    trainer.predict(assembly.model, dataloaders=assembly.data.eval_loader(split), return_predictions=False)
    return assembly.world.collect(assembly.model.predicted)


def device_name(accelerator: str) -> str:
    device = pick_device(accelerator)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
