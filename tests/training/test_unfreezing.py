"""Gradual unfreezing in real cells: which groups are trained in which epoch."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from harness.training.assemble import Assembly, assemble
from harness.training.run import run_cell
from harness.training.trainer import fit, make_trainer
from tests.helpers.cells import make_cell

QUICK = ["limit=16", "trainer.batch_size=8", "trainer.threads=1", "task=mini_topic", "trainer.patience=null"]


class Watch(pl.Callback):
    """Which optimizer groups changed in each epoch, and which have Adam moments after it."""

    def __init__(self) -> None:
        self.changed: list[set[str]] = []
        self.with_moments: list[set[str]] = []

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        groups = trainer.optimizers[0].param_groups
        self.before = {g["name"]: [p.detach().clone() for p in g["params"]] for g in groups}

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        optimizer = trainer.optimizers[0]
        changed, with_moments = set(), set()
        for group in optimizer.param_groups:
            pairs = zip(self.before[group["name"]], group["params"], strict=True)
            name = group["name"].removesuffix(".no_decay")
            if any(not torch.equal(a, b) for a, b in pairs):
                changed.add(name)
            if any(optimizer.state.get(p) for p in group["params"]):
                with_moments.add(name)
        self.changed.append(changed)
        self.with_moments.append(with_moments)


def trained(folder: Path, *overrides: str) -> tuple[Assembly, Watch, pl.Trainer]:
    cell = make_cell(folder, *QUICK, *overrides)
    assert cell.skip is None
    pl.seed_everything(0, verbose=False)
    assembly = assemble(cell, lambda event: None)
    watch = Watch()
    trainer = make_trainer(cell, assembly, [watch])
    fit(trainer, assembly)
    return assembly, watch, trainer


def test_one_layer_group_is_unfrozen_per_epoch_from_the_top(tmp_path: Path) -> None:
    assembly, watch, trainer = trained(
        tmp_path, "encoder=mini_bert", "strategy=ulmfit", "trainer.epochs=5", "optimizer.lr=1e-2"
    )
    order = ["task", *(f"encoder.{name}" for name, _ in reversed(assembly.encoding.encoder.layer_groups()))]
    assert len(order) >= 3
    assert watch.changed == [set(order[: e + 1]) for e in range(5)]
    assert watch.with_moments == watch.changed, "no moments while a group is frozen"
    assert all(p.requires_grad for p in assembly.model.parameters())
    rates = {g["name"]: g["initial_lr"] for g in trainer.optimizers[0].param_groups}
    for above, below in itertools.pairwise(order):
        assert rates[below] == pytest.approx(rates[above] / 2.6)


def test_lp_ft_trains_everything_after_the_head_alone(tmp_path: Path) -> None:
    _, watch, _ = trained(
        tmp_path, "encoder=mini_gpt", "strategy=lp_ft", "trainer.epochs=3", "strategy.unfreeze=2"
    )
    assert watch.changed[:2] == [{"task"}, {"task"}]
    assert len(watch.changed[2]) > 2


def test_the_optimizer_state_of_a_run_with_unfreezing_can_be_loaded(tmp_path: Path) -> None:
    options = ["encoder=mini_bert", "strategy=ulmfit", "trainer.epochs=3", "optimizer.lr=1e-2"]
    stopped, _, trainer = trained(tmp_path / "a", *options)
    state = trainer.optimizers[0].state_dict()
    cell = make_cell(tmp_path / "b", *QUICK, *options)
    fresh = assemble(cell, lambda event: None).model
    optimizers, _ = fresh.configure_optimizers()
    optimizers[0].load_state_dict(state)
    loaded: dict[str, Any] = optimizers[0].state_dict()
    assert [g["name"] for g in loaded["param_groups"]] == [g["name"] for g in state["param_groups"]]
    assert loaded["state"].keys() == state["state"].keys()
    for key, moments in state["state"].items():
        assert torch.equal(loaded["state"][key]["exp_avg"], moments["exp_avg"])
    assert stopped.model.strategy.unfreeze == "gradual"


def test_embedding_tables_have_nothing_to_unfreeze(tmp_path: Path) -> None:
    for strategy in ("ulmfit", "lp_ft"):
        cell = make_cell(tmp_path, *QUICK, "encoder=mini_static", f"strategy={strategy}")
        assert cell.skip is not None
        assert "embedding_init" in cell.skip


def test_a_record_names_the_layers_that_stayed_frozen(tmp_path: Path) -> None:
    cell = make_cell(tmp_path, *QUICK, "encoder=mini_bert", "strategy=ulmfit", "trainer.epochs=2")
    notes = run_cell(cell).notes
    assert any("layer_0 stayed frozen for all 2 epochs" in note for note in notes), notes
