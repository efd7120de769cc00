"""One pretraining over several ranks: what each takes, that the weights are those of one, and kills."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.errors import HarnessError
from harness.pretraining.base import BatchLoss
from harness.pretraining.config import work_folder
from harness.pretraining.distributed import StepLoss, gather_carry, shard_carry, weighted_loss
from harness.pretraining.factories import build_pretrainer
from harness.pretraining.job import run_job
from harness.pretraining.text.corpus import read_corpus
from harness.processes.distributed import ALONE, Group
from harness.processes.ranks import on_ranks
from tests.helpers.objective_runners import ToyRun, run_toy
from tests.helpers.tiny_corpus import config, write

STILL = {
    "bert": ["encoder.dropout=0"],
    "gpt": ["encoder.dropout=0"],
    "ulmfit": ["encoder.dropout_multiplier=0"],
    "elmo": ["encoder.dropout=0"],
}
"""Without dropout, whose draws are each rank's own."""
OTHERS = ("bert", "gpt", "elmo")


class Rank(Group):
    """One of several that only says which it is, and hears what it is told."""

    def __init__(self, rank: int, size: int, told: list[Any] | None = None) -> None:
        super().__init__(rank, size)
        self.told = told or []

    def gather(self, thing: Any) -> list[Any]:
        return self.told


def of_ranks(losses: list[BatchLoss | None]) -> StepLoss:
    there = [loss for loss in losses if loss is not None]
    also = [[n for _, n in loss.extra_means] for loss in there]
    return StepLoss(
        sum(x.nll for x in there),
        sum(x.predicted for x in there),
        tuple(map(sum, zip(*also, strict=True))),
    )


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    ("family", "more"), [*((f, ()) for f in STILL), ("bert", ("encoder.next_sentence=true",))]
)
def test_the_ranks_gradients_add_up_to_that_of_the_whole_step(
    family: str, more: tuple[str, ...], size: int, tmp_path: Path
) -> None:
    corpus = read_corpus(write(tmp_path), held_out=0.1)
    given = config(family, *STILL[family], *more, corpus=Path("x"), output=Path("y"))
    objective: Any = build_pretrainer(given["encoder"])
    objective.prepare(corpus, seed=0)
    torch.manual_seed(0)
    model = objective.build()
    parameters = [p for p in model.parameters() if p.requires_grad]
    for batch in list(objective.batches(seed=0, epoch=0))[:3]:
        whole = objective.loss(model, batch, None)
        total = weighted_loss(whole, of_ranks([whole]), Rank(0, 1))
        wanted = torch.autograd.grad(total, parameters, allow_unused=True)
        parts = [objective.shard(batch, rank=r, size=size) for r in range(size)]
        assert {(p.tokens, p.words) for p in parts} == {(batch.tokens, batch.words)}
        losses = [objective.loss(model, p, None) if p.tensors else None for p in parts]
        step = of_ranks(losses)
        assert step.predicted == whole.predicted
        assert step.nll == pytest.approx(whole.nll, rel=1e-5)
        found = [torch.zeros_like(p) for p in parameters]
        for rank, loss in enumerate(losses):
            if loss is None:
                continue
            mine = weighted_loss(loss, step, Rank(rank, size))
            for into, gradient in zip(found, torch.autograd.grad(mine, parameters, allow_unused=True)):  # noqa: B905
                if gradient is not None:
                    into += gradient
        for sums, gradient in zip(found, wanted, strict=True):
            torch.testing.assert_close(sums, torch.zeros_like(sums) if gradient is None else gradient,
                                       rtol=1e-3, atol=1e-6)  # fmt: skip


def test_more_ranks_than_rows_leave_some_without_and_what_is_carried_is_whole_again(tmp_path: Path) -> None:
    given = config("gpt", corpus=Path("x"), output=Path("y"))
    objective: Any = build_pretrainer(given["encoder"])
    objective.prepare(read_corpus(write(tmp_path), held_out=0.1), seed=0)
    batch = next(objective.batches(seed=0, epoch=0))
    parts = [objective.shard(batch, rank=r, size=6) for r in range(6)]
    assert [bool(p.tensors) for p in parts] == [True] * 4 + [False] * 2
    carry = [(torch.arange(10.0).view(1, 5, 2), torch.ones(1, 5, 3))]
    shares = [shard_carry(carry, Rank(r, 2)) for r in range(2)]
    assert shares[1][0][0].tolist() == [[[2.0, 3.0], [6.0, 7.0]]]
    again = gather_carry(None, Rank(0, 2, shares))
    assert torch.equal(again[0][0], carry[0][0])
    assert gather_carry(None, Rank(0, 2, [None, None])) is None


@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_step_on_several_ranks_is_that_on_one_device(size: int, tmp_path: Path) -> None:
    """Rows of unequally many items, carried state, clipping, a tied parameter, a parameter that a single row
    uses, and one that none does; of five ranks the last has no rows."""
    results: list[dict[str, Any]] = []
    run_toy(ToyRun(tmp_path, 1), results.append, ALONE)
    on_ranks(ToyRun(tmp_path, size), results.append, runner="tests.helpers.objective_runners:run_toy")
    one, several = results
    assert several["gradients"] == one["gradients"] == ["always", "sometimes"]
    assert several["weights"]["never"] == [3.0] * 6, "no weight decay for a parameter that no rank uses"
    assert several["loss"] == pytest.approx(one["loss"], rel=1e-12)
    for name, values in one["weights"].items():
        assert several["weights"][name] == pytest.approx(values, rel=1e-9), name


@pytest.mark.parametrize("family", ["word2vec", "fasttext", "glove"])
def test_families_without_a_gradient_that_could_be_divided_are_refused(family: str, tmp_path: Path) -> None:
    given = config(family, "trainer.devices=2", corpus=write(tmp_path), output=tmp_path / "out")
    with pytest.raises(HarnessError, match=rf"trainer\.devices=2: encoder={family} is not"):
        run_job(given, report=print)
    assert not (tmp_path / "out").exists()


def weights(folder: Path) -> dict[str, torch.Tensor]:
    import h5py
    from safetensors.torch import load_file

    if (folder / "model.safetensors").is_file():
        return load_file(folder / "model.safetensors")
    out = load_file(folder / "softmax.safetensors")
    with h5py.File(folder / "weights.hdf5") as file:

        def keep(name: str, x: Any) -> None:
            if isinstance(x, h5py.Dataset):
                out[name] = torch.tensor(x[()])

        file.visititems(keep)
    return out


@pytest.mark.timeout(300)
@pytest.mark.parametrize("family", ["ulmfit", *(pytest.param(f, marks=pytest.mark.long) for f in OTHERS)])
def test_two_ranks_end_with_the_weights_of_one_also_after_a_kill(family: str, tmp_path: Path) -> None:
    corpus = write(tmp_path)
    steady = [*STILL[family], "trainer.checkpoint_seconds=0", "trainer.log_seconds=1e-6"]

    def given(name: str, devices: int) -> dict[str, Any]:
        return config(family, *steady, f"trainer.devices={devices}", corpus=corpus, output=tmp_path / name)

    one = run_job(given("one", 1), report=lambda _: None)
    two = run_job(given("two", 2), report=lambda _: None)
    assert (one["devices"], two["devices"]) == (1, 2)
    assert {k: one["seen"][k] for k in ("tokens", "words", "steps")} == {
        k: two["seen"][k] for k in ("tokens", "words", "steps")
    }
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-3)
    first, second = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, rtol=1e-3, atol=2e-4)

    def interrupt(line: str) -> None:
        if "step 9 " in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(given("cut", 2), report=interrupt)
    shutil.copytree(work_folder(tmp_path / "cut"), work_folder(tmp_path / "moved"))
    told: list[str] = []
    run_job(given("cut", 2), report=told.append)
    assert any(line.startswith("continues from step-0000000") for line in told)
    cut = weights(tmp_path / "cut")
    assert all(torch.equal(cut[name], tensor) for name, tensor in second.items())
    assert not work_folder(tmp_path / "cut").exists()
    told = []
    run_job(given("moved", 1), report=told.append)
    assert any(line.startswith("continues from step-0000000") for line in told)
    moved = weights(tmp_path / "moved")
    for name, tensor in first.items():
        torch.testing.assert_close(moved[name], tensor, rtol=1e-3, atol=2e-4)


@pytest.mark.timeout(300)
def test_what_a_rank_dies_of_is_said_once(tmp_path: Path) -> None:
    wild = config(
        "gpt", "encoder.recipe.lr=1e30", "encoder.recipe.max_grad_norm=null", "trainer.devices=2",
        corpus=write(tmp_path), output=tmp_path / "out",
    )  # fmt: skip
    said = r"^diverged: the loss is (nan|inf) at step \d+; lower encoder\.recipe\.lr$"
    with pytest.raises(HarnessError, match=said):
        run_job(wild, report=lambda _: None)
