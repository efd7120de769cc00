"""Running a cell: the epoch chosen on dev, the record, predictions, divergence, golden losses."""

from __future__ import annotations

import copy
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.plugins.precision import MixedPrecision
from safetensors.torch import load_file, save_file
from torch.amp import GradScaler

from harness.core.paths import mini_dir
from harness.errors import HarnessError
from harness.records.predictions import read_predictions
from harness.records.record import read_record
from harness.training import run as cell_module
from harness.training.assemble import assemble
from harness.training.callbacks import BestEpochCallback
from harness.training.dataloader import step_order
from harness.training.run import coverage_warnings, encoding_notes, run_cell
from harness.training.trainer import fit, make_trainer
from tests.helpers.cells import make_cell

QUICK = ["limit=16", "trainer.epochs=2", "trainer.batch_size=8", "trainer.threads=1"]


def choose(scores: list[float], *, keep: str = "best", patience: int | None = None) -> tuple[Any, int]:
    """Feed dev scores to the callback as Lightning would; the callback, and after how many it stopped."""
    task = SimpleNamespace(metric="m", maximize=True, score=lambda p, e: {"m": p})
    choice = BestEpochCallback(task, [], keep=keep, patience=patience, progress=lambda e: None)  # type: ignore[arg-type]
    trainer = SimpleNamespace(should_stop=False)
    for n, score in enumerate(scores, 1):
        state = {"epoch": torch.tensor(n)}
        choice.on_validation_start(trainer, None)  # type: ignore[arg-type]
        task.score = lambda p, e, s=score: {"m": s}
        choice.on_validation_end(
            trainer, SimpleNamespace(predicted={}, trainable_state_dict=lambda s=state: s)
        )  # type: ignore[arg-type]
        if trainer.should_stop:
            return choice, n
    return choice, len(scores)


def test_nan_never_wins_and_is_no_improvement() -> None:
    """A NaN score on dev is never selected and counts against the patience; if all scores are NaN, the first
    epoch is selected."""
    nan = math.nan
    choice, _ = choose([nan, 0.7, 0.8, nan])
    assert (choice.epoch, choice.scores["m"]) == (3, 0.8)
    assert choice.state["epoch"].item() == 3
    _, stopped = choose([0.5, nan, nan, 0.9], patience=2)
    assert stopped == 3
    choice, _ = choose([nan, nan])
    assert choice.epoch == 1


def test_last_epoch_and_patience() -> None:
    choice, _ = choose([0.9, 0.1], keep="last")
    assert (choice.epoch, choice.scores["m"]) == (2, 0.1)
    assert choose([0.5, 0.6, 0.6, 0.4, 0.9], patience=2)[1] == 4


def test_record_says_what_happened(tmp_path: Path) -> None:
    cell = make_cell(tmp_path, "encoder=mini_bert", "strategy=full", "task=mini_ner", *QUICK)
    events: list[dict[str, Any]] = []
    returned = run_cell(cell, events.append)
    record = read_record(cell.folder)
    assert record.test == returned.test
    assert record.status == "complete"
    assert (record.n_train, record.n_dev, record.n_test, record.partial) == (16, 16, 16, 16)
    assert record.epochs == 2
    assert record.dev_history[record.epoch - 1] == record.dev[record.metric]  # type: ignore[operator]
    assert record.trained_parameters == record.parameters > 100_000
    assert record.costs.overhead_seconds == pytest.approx(
        record.costs.total_seconds
        - record.costs.load_seconds
        - record.costs.encode_seconds
        - record.costs.train_seconds
        - record.costs.eval_seconds
    )
    assert record.costs.load_seconds > 0
    assert {"read", "encode", "dev", "test"} <= {e["phase"] for e in events}
    rows = read_predictions(cell.folder)
    assert len(rows) == 16
    assert all(len(r["prediction"]) == len(r["gold"]) for r in rows)
    assert not [p for p in cell.folder.iterdir() if p.name.startswith(".tmp")]
    assert record.versions["torch"] == torch.__version__


def test_frozen_counts_the_encoder_it_did_not_load(tmp_path: Path) -> None:
    over = ["encoder=mini_bert", "strategy=frozen", "task=mini_topic", *QUICK]
    first, second = (run_cell(make_cell(tmp_path, *over, f"seed={s}")) for s in (0, 1))
    assert (first.costs.encode_cached, second.costs.encode_cached) == (False, True)
    assert (first.costs.load_seconds > 0, second.costs.load_seconds) == (True, 0)
    assert first.parameters == second.parameters > first.trained_parameters
    assert first.costs.encode_seconds == pytest.approx(second.costs.encode_seconds)
    assert first.coverage["tokens"] == second.coverage["tokens"]


def test_rates_seeds_and_heads_share_one_encoding(tmp_path: Path) -> None:
    over = ["encoder=mini_bert", "strategy=frozen", "task=mini_topic", *QUICK]
    for lr in (1e-3, 2e-3):
        for seed in (0, 1):
            run_cell(make_cell(tmp_path, *over, f"optimizer.lr={lr}", f"seed={seed}", "trainer.epochs=1"))
    run_cell(make_cell(tmp_path, *over, "body=none", "trainer.epochs=1"))
    assert len([p for p in (tmp_path / "cache" / "features").iterdir() if p.is_dir()]) == 1


def test_without_a_dev_split_the_last_epoch_must_be_asked_for(tmp_path: Path) -> None:
    over = ["encoder=mini_static", "strategy=frozen", "task=mini_topic", "task.dev=none", *QUICK]
    with pytest.raises(HarnessError, match=r"trainer.select=last"):
        run_cell(make_cell(tmp_path, *over))
    record = run_cell(make_cell(tmp_path, *over, "trainer.select=last"))
    assert (record.dev, record.n_dev, record.epoch) == ({}, 0, 2)
    assert record.test


def test_divergence_is_an_error_that_says_so(tmp_path: Path) -> None:
    over = ["encoder=mini_bert", "strategy=full", "task=mini_topic", *QUICK, "optimizer.max_grad_norm=null"]
    with pytest.raises(HarnessError, match=r"diverged.*lower optimizer.lr"):
        run_cell(make_cell(tmp_path, *over, "optimizer.lr=1e18", "schedule=constant", "trainer.epochs=8"))


def test_more_units_than_the_encoder_takes_is_refused(tmp_path: Path) -> None:
    over = ["encoder=mini_bert", "strategy=full", "task=mini_topic", *QUICK]
    with pytest.raises(HarnessError, match=r"trainer.max_length=100000.*takes at most"):
        run_cell(make_cell(tmp_path, *over, "trainer.max_length=100000"))


def test_notes_of_units() -> None:
    report = {"texts_cut": 3, "unknown_share": 0.4, "words_deleted": 2}
    notes = " ".join(encoding_notes(report))
    for word in ("3 texts", "2 words"):
        assert word in notes
    assert coverage_warnings(report) == [
        "40% of the tokens are unknown to the encoder: does it speak the language?"
    ]
    assert coverage_warnings({"words": 4.0, "words_known": 1.0})[0].startswith("75% of the words are unknown")
    assert coverage_warnings({"unknown_share": 0.01, "words": 4.0, "words_known": 3.0}) == []


def test_unknown_words_are_a_warning_during_the_run_and_in_the_record(tmp_path: Path) -> None:
    """A text in another language than the encoder's."""
    rows = "text,label\n" + "완전히 다른 언어,a\n전혀 모르는 말,b\n" * 8
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.csv").write_text(rows.replace("말", f"말{name}"))
    files = [f"task.{n}={tmp_path / n}.csv" for n in ("train", "dev", "test")]
    task = ["task=text_classification", "task.name=ko", "task.label=label", *files]
    cell = make_cell(tmp_path, "encoder=mini_static", "strategy=frozen", *task, *QUICK)
    events: list[dict[str, Any]] = []
    record = run_cell(cell, events.append)
    (warning,) = [w for w in record.warnings if "unknown to the encoder" in w]
    assert f"warning: {warning}" in [e.get("message") for e in events]


def test_csv_logger_writes_the_curve(tmp_path: Path) -> None:
    cell = make_cell(
        tmp_path, "encoder=mini_static", "strategy=frozen", "task=mini_topic", "logger=csv", *QUICK
    )
    run_cell(cell)
    assert "train_loss" in (cell.folder / "metrics.csv").read_text()


GOLDEN = {
    ("mini_bert", "full", "mini_topic"): [1.87409, 1.90731, 1.25421, 0.95500],
    ("mini_gpt", "full", "mini_ner"): [2.20231, 2.22610, 0.98759, 0.70350],
    ("mini_bert", "frozen", "mini_qa"): [3.57716, 3.86588, 3.56494, 3.84844],
    ("mini_static", "embedding_init", "mini_topic"): [1.79060, 1.78659, 1.74159, 1.69351],
}
GIVEN = [
    "optimizer.lr=2e-3",
    "schedule=linear",
    "schedule.warmup=0.25",
]  # a new recipe is another cell by itself


def without_dropout(folder: Path, *overrides: str) -> tuple[Any, Any]:
    """A cell and its parts, every dropout switched off."""
    cell = make_cell(folder, *overrides, *QUICK, "trainer.dropout=0")
    torch.manual_seed(cell.seed)
    built = assemble(cell, lambda event: None)
    for module in built.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return cell, built


@pytest.mark.parametrize("which", list(GOLDEN), ids="-".join)
def test_golden_losses_of_a_short_run(tmp_path: Path, which: tuple[str, str, str]) -> None:
    """The losses of a short run without dropout, as they were when results were last checked. A change here
    changes results: raise the component's result_version and the figures together."""
    encoder, strategy, task = which
    over = [f"encoder={encoder}", f"strategy={strategy}", f"task={task}", *GIVEN]
    cell, built = without_dropout(tmp_path, *over)
    fit(make_trainer(cell, built, []), built)
    assert built.model.losses == pytest.approx(GOLDEN[which], rel=2e-3)


def test_fine_tuning_is_what_a_plain_loop_does(tmp_path: Path) -> None:
    """The engine against transformers and torch alone: same weights, same batches, same losses."""
    from transformers import AutoModel, AutoTokenizer

    cell, built = without_dropout(tmp_path, "encoder=mini_bert", "strategy=full", "task=mini_topic")
    folder = str(cell.encoder.options["path"])
    model = AutoModel.from_pretrained(folder, add_pooling_layer=False).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    head = copy.deepcopy(next(m for m in built.model.head.modules() if isinstance(m, torch.nn.Linear)))
    parameters = [*model.parameters(), *head.parameters()]
    decay = cell.optimizer.weight_decay
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=cell.optimizer.lr)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    labels = sorted({e.gold for e in built.splits.train})
    losses, step, total = [], 0, 4
    for epoch in range(2):
        for numbers in step_order(built.items["train"], batch_size=8, seed=cell.seed, epoch=epoch):
            chosen = [built.splits.train[i] for i in numbers]
            rows = tokenizer([e.texts[0].text for e in chosen], padding=True, return_tensors="pt")
            logits = head(model(**rows).last_hidden_state[:, 0])
            target = torch.tensor([labels.index(e.gold) for e in chosen])
            loss = torch.nn.functional.cross_entropy(logits, target)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            warm = math.floor(cell.schedule.warmup * total)
            factor = step / warm if step < warm else (total - step) / (total - warm)
            for group in optimizer.param_groups:
                group["lr"] = cell.optimizer.lr * factor
            optimizer.step()
            losses.append(loss.item())
            step += 1
    fit(make_trainer(cell, built, []), built)
    assert built.model.losses == pytest.approx(losses, rel=1e-4)


def test_weights_that_are_no_numbers_are_not_blamed_on_the_rate(tmp_path: Path) -> None:
    shutil.copytree(mini_dir() / "zoo" / "bert", tmp_path / "bert")
    path = tmp_path / "bert" / "model.safetensors"
    tensors = load_file(path)
    name = next(k for k in tensors if k.endswith("word_embeddings.weight"))
    save_file({**tensors, name: tensors[name].fill_(float("nan"))}, path, metadata={"format": "pt"})
    over = ["encoder=mini_bert", f"encoder.path={tmp_path / 'bert'}", "task=mini_topic", *QUICK]
    for strategy in ("full", "frozen"):
        with pytest.raises(HarnessError, match="its weights give numbers that are not finite"):
            run_cell(make_cell(tmp_path, *over, f"strategy={strategy}"))


def test_a_model_whose_outputs_are_nan_has_diverged(tmp_path: Path) -> None:
    cell = make_cell(
        tmp_path, "task=mini_topic", "encoder=mini_bert", "limit=16", "optimizer.lr=1e25", "trainer.epochs=1",
        "schedule=constant", "schedule.warmup=0", "trainer.batch_size=1000", "optimizer.max_grad_norm=null",
        "optimizer.weight_decay=1e25",
    )  # fmt: skip
    with pytest.raises(HarnessError, match="diverged"):
        run_cell(cell)


def test_half_precision_unscales_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on CUDA: Lightning's plugin with a gradient scaler, here on the CPU."""
    made = cell_module.make_trainer

    def scaled(*arguments: Any) -> Any:
        trainer = made(*arguments)
        trainer.strategy.precision_plugin = MixedPrecision("16-mixed", "cpu", scaler=GradScaler("cpu"))
        return trainer

    monkeypatch.setattr(cell_module, "make_trainer", scaled)
    cell = make_cell(
        tmp_path, "task=mini_topic", "encoder=mini_static", "strategy=embedding_init", "limit=16",
        "trainer.epochs=2", "trainer.threads=1",
    )  # fmt: skip
    assert run_cell(cell).status == "complete"


def test_features_that_cannot_be_kept_are_computed_all_the_same(tmp_path: Path) -> None:
    cell = make_cell(tmp_path, "task=mini_topic", "encoder=mini_bert", "strategy=frozen", "limit=16",
                     "trainer.epochs=1")  # fmt: skip
    (tmp_path / "cache").write_text("a file in the way")
    record = run_cell(cell)
    assert record.status == "complete"
    assert any("features cannot be kept" in w for w in record.warnings)
    (tmp_path / "cache").unlink()
    again = run_cell(cell)
    assert again.test == record.test
