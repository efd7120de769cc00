"""A cell over several devices: what each rank takes, that the numbers are those of one, what a death does."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from harness.core.paths import mini_dir
from harness.errors import HarnessError
from harness.processes.distributed import Group, World, bit_sums, join_parts
from harness.processes.lightning import Sharding
from harness.processes.ranks import run_ranks
from harness.processes.slots import make_slots
from harness.records.predictions import PREDICTIONS
from harness.records.record import Record, read_record
from harness.training.dataloader import Share, eval_plans, split_by_tokens, train_plans
from harness.training.run import CHECKPOINT, restore, run_cell
from tests.helpers.cells import make_cell
from tests.helpers.paths import PYTHONPATH, ROOT

HELPERS = ROOT / "tests" / "helpers"
QUICK = ["task=mini_topic", "limit=15", "trainer.batch_size=7", "trainer.patience=null"]
SECONDS = 5.0
"""What a cell may still take when a rank of it has died; measured 0.1 to 0.5 s; the rest is room."""


class _Item:
    def __init__(self, width: int) -> None:
        self.width, self.rows = width, [(None,)]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("max_length", [None, 20])
def test_every_step_is_dealt_out_whole(size: int, max_length: int | None) -> None:
    items: Any = [_Item(3 + n % 5) for n in range(17)]
    steps = [[3, 1, 4, 15, 9, 2, 6], [5, 8, 7], [0], [10, 11, 12, 13, 14, 16]]
    dealt = [train_plans(items, steps, max_length=max_length, share=Share(r, size)) for r in range(size)]
    assert {len(plans) for plans in dealt} == {len(steps)}
    for n, numbers in enumerate(steps):
        taken = [i for plans in dealt for batch in plans[n].batches for i in batch]
        assert sorted(taken) == sorted(numbers), "each example once"
        assert {plans[n].examples for plans in dealt} == {len(numbers)}
        assert all(batch for plans in dealt for batch in plans[n].batches), "no empty micro-batch"
    if size == 5:
        assert dealt[4][2].batches == []
    assert split_by_tokens(items, [], max_length=max_length) == []


def test_in_lockstep_every_rank_runs_as_many_batches() -> None:
    """With two micro-batches on rank 0 and one on rank 1, rank 1 repeats an example that counts for
    nothing."""
    items: Any = [_Item(5) for _ in range(4)]
    shares = [Share(rank, 2, lockstep=True) for rank in (0, 1)]
    first, second = (train_plans(items, [[0, 1, 2], [3]], max_length=5, share=s) for s in shares)
    assert [(p.batches, p.filler) for p in first] == [([[0], [2]], 0), ([[3]], 0)]
    assert [(p.batches, p.filler) for p in second] == [([[1], [0]], 1), ([[3]], 1)]
    first, second = (eval_plans([[0, 1], [2, 3], [1]], share=s) for s in shares)
    assert [(p.batches, p.filler) for p in second] == [([[2, 3]], 0), ([[0, 1]], 1)]
    assert [p.filler for p in first] == [0, 0]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_evaluation_batches_are_dealt_out_whole_and_every_rank_has_something_to_do(size: int) -> None:
    batches = [[1, 2], [3, 4], [5]]
    dealt = [eval_plans(batches, share=Share(r, size)) for r in range(size)]
    assert sorted(b for plans in dealt for plan in plans for b in plan.batches) == batches
    assert all(dealt), "a loader without steps would not be run at all"
    assert not eval_plans([])


def test_two_ranks_that_predict_one_example_are_an_error() -> None:
    assert join_parts([{"a": 1}, {}, {"b": 2}]) == {"a": 1, "b": 2}
    with pytest.raises(AssertionError, match="two ranks"):
        join_parts([{"a": 1}, {"a": 1}])


class _Threads(Group):
    """Ranks that are threads: what they say to each other goes through a list."""

    def __init__(self, rank: int, table: list[Any], meet: threading.Barrier) -> None:
        super().__init__(rank, len(table))
        self.table, self.meet = table, meet

    def gather(self, value: Any) -> list[Any]:
        self.table[self.rank] = value
        self.meet.wait(10)
        out = list(self.table)
        self.meet.wait(10)
        return out

    def all_reduce(self, values: Tensor) -> None:
        values.copy_(torch.stack(self.gather(values.clone())).sum(0))


def _together(size: int, do: Any) -> list[Any]:
    """``do(world)`` on each of ``size`` ranks; what each gave or raised."""
    table, meet, out = [None] * size, threading.Barrier(size), [None] * size

    def one(rank: int) -> None:
        try:
            out[rank] = do(_Threads(rank, table, meet))
        except Exception as e:
            out[rank] = e  # type: ignore[call-overload]

    ranks = [threading.Thread(target=one, args=(r,)) for r in range(size)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    return out


def test_weights_that_differ_in_a_bit_are_noticed() -> None:
    def check(world: Any) -> None:
        weight = torch.ones(4)
        if world.rank == 2:
            weight[1] = torch.nextafter(weight[1], torch.tensor(2.0))
        world.check_same([torch.zeros(3, dtype=torch.bool), weight], when="after epoch 1")

    found = _together(3, check)
    assert all(isinstance(e, HarnessError) and "rank 2 differ" in str(e) for e in found)
    assert bit_sums([]) == []


def test_the_first_rank_goes_ahead() -> None:
    order: list[int] = []

    class Waiting(_Threads):
        def _wait(self) -> None:
            self.meet.wait(10)

    def enter(world: _Threads) -> None:
        waiting = Waiting(world.rank, world.table, world.meet)
        with waiting.first_ahead():
            time.sleep(0.05 if world.first else 0)
            order.append(world.rank)

    _together(3, enter)
    assert order[0] == 0


def test_slots_hold_the_devices_of_a_cell_or_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    assert [s.devices for s in make_slots(devices=2)] == ["0,1"]
    with pytest.raises(HarnessError, match="3 CUDA devices"):
        make_slots(devices=4)
    with pytest.raises(HarnessError, match="slot '2' has 1 devices"):
        make_slots(["0,1", "2"], devices=2)
    assert [s.devices for s in make_slots(accelerator="cpu", devices=4)] == [None]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert [s.devices for s in make_slots(devices=2)] == [None]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled BERT without dropout."""
    target = Path(shutil.copytree(mini_dir() / "zoo" / "bert", tmp_path_factory.mktemp("zoo") / "bert"))
    config = json.loads((target / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (target / "config.json").write_text(json.dumps(config))
    return target


def _result(results: Path) -> tuple[Record, list[dict[str, Any]]]:
    (path,) = results.glob("*/*/*/*/seed-0/record.json")
    return read_record(path.parent), pq.read_table(path.parent / PREDICTIONS).to_pylist()


def _numbers(value: Any) -> list[float]:
    """All numbers in a row's scores, in a fixed order."""
    if isinstance(value, dict):
        return [n for k in sorted(value) for n in _numbers(value[k])]
    if isinstance(value, list | tuple):
        return [n for v in value for n in _numbers(v)]
    return [float(value)] if isinstance(value, int | float) else []


def _assert_same(one: Path, several: Path) -> None:
    """Both results folders hold the same scores, epochs and predictions, and logits within 1e-5."""
    (a, rows), (b, others) = _result(one), _result(several)
    assert (a.epochs, a.epoch, a.warnings) == (b.epochs, b.epoch, b.warnings)
    assert (a.test, a.dev, a.dev_history) == (b.test, b.dev, b.dev_history)
    keys = [(r["split"], r["id"]) for r in rows]
    assert len(set(keys)) == len(keys) == 30
    assert keys == [(r["split"], r["id"]) for r in others]
    assert [r["prediction"] for r in rows] == [r["prediction"] for r in others]
    logits, others_logits = _numbers([r["scores"] for r in rows]), _numbers([r["scores"] for r in others])
    assert logits
    # measured: at most 2.1e-6, the order of additions through the epochs
    assert others_logits == pytest.approx(logits, abs=1e-5)


def test_two_devices_in_a_sweep_give_the_predictions_of_one(tmp_path: Path, encoder: Path) -> None:
    """One command with both; its last step has one example for two ranks."""
    shown = subprocess.run(
        [sys.executable, "-P", "-m", "harness", "-m", "trainer.devices=1,2", "cache_dir=cache",
         "results_dir=by-${trainer.devices}", *_options(encoder, "strategy=full"), *QUICK],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert set(os.listdir(tmp_path)) <= {"by-1", "by-2", "cache", "multirun", "outputs"}
    assert [_result(tmp_path / f"by-{n}")[0].costs.devices for n in (1, 2)] == [1, 2]
    _assert_same(tmp_path / "by-1", tmp_path / "by-2")
    (log,) = (tmp_path / "by-2").glob("*/*/*/*/seed-0/log.txt")
    assert "Warning" not in log.read_text(), "every parameter is used, and DDP's search for unused ones is on"


def _options(encoder: Path, *overrides: str) -> list[str]:
    """Without dropout, whose draws differ between ranks, and with an eps that keeps AdamW from turning the
    rounding errors of gradients that are zero in exact arithmetic (such as that of a bias before a softmax)
    into steps of the whole learning rate."""
    return [
        "encoder=mini_bert", f"encoder.path={encoder}", "trainer.dropout=0", "trainer.epochs=3",
        "trainer.accelerator=cpu", "optimizer.eps=1e-4", *overrides,
    ]  # fmt: skip


def _run(folder: Path, encoder: Path, *overrides: str) -> Path:
    """Run a cell of 15 examples in steps of 7: the last has one, fewer than there are ranks."""
    cell = make_cell(folder, *QUICK, *_options(encoder, "trainer.threads=1", *overrides))
    assert run_cell(cell).status == "complete"
    return cell.folder.parents[4]


UNFREEZING = ["strategy=ulmfit", "optimizer.lr=1e-3"]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_ranks_tag_as_one_device_with_micro_batches_and_unfreezing(
    tmp_path: Path, encoder: Path, strategy: str
) -> None:
    options = ["task=mini_ner", "trainer.max_tokens_per_batch=40", *UNFREEZING]
    one = _run(tmp_path / "one", encoder, *options)
    several = _run(tmp_path / "two", encoder, *options, "trainer.devices=2", f"trainer.strategy={strategy}")
    _assert_same(one, several)


@pytest.mark.long
@pytest.mark.parametrize("micro_batches", [False, True])
@pytest.mark.parametrize("transfer", ["full", "ulmfit"])
@pytest.mark.parametrize("task", ["mini_topic", "mini_ner", "mini_qa"])
def test_every_number_of_ranks_gives_the_result_of_one_device(
    tmp_path: Path, encoder: Path, task: str, transfer: str, micro_batches: bool
) -> None:
    options = [f"task={task}", f"strategy={transfer}", "optimizer.lr=1e-3"]
    options += ["trainer.max_tokens_per_batch=150"] if micro_batches else []
    one = _run(tmp_path / "one", encoder, *options)
    for strategy in ("ddp", "fsdp"):
        for devices in (2, 3):
            more = [f"trainer.devices={devices}", f"trainer.strategy={strategy}"]
            _assert_same(one, _run(tmp_path / f"{strategy}-{devices}", encoder, *options, *more))


def test_sharded_weights_are_saved_as_one_checkpoint(tmp_path: Path, encoder: Path) -> None:
    """Each rank holds about half of the parameters; the file is that of one device."""
    options = [*_options(encoder, *UNFREEZING), *QUICK, "trainer.epochs=2", "trainer.save=true"]
    one = make_cell(tmp_path / "one", *options)
    run_cell(one)
    sharded = make_cell(tmp_path / "two", *options, "trainer.devices=2", "trainer.strategy=fsdp")
    run_ranks(sharded, lambda event: None, runner="tests.helpers.ddp_runners:measured_runner")
    held = [json.loads((sharded.folder / f"held-{rank}.json").read_text()) for rank in (0, 1)]
    # the root's parameters (the task network) stay gathered between a forward pass and the optimizer step
    assert max(h["local"] for h in held) < 0.55 * held[0]["total"]
    expected, saved = load_file(one.folder / CHECKPOINT), load_file(sharded.folder / CHECKPOINT)
    assert expected.keys() == saved.keys()
    for name, value in expected.items():
        torch.testing.assert_close(saved[name], value, rtol=0, atol=1e-5)
    assert restore(sharded).model.sharding is None


def test_autocast_of_shards_follows_the_device_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """With trainer.accelerator=cpu on a machine with GPUs, the batch is on the CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    product = torch.ones(2, 2)
    with Sharding(World(), "bf16-mixed").autocast(product.device):
        assert (product @ product).dtype == torch.bfloat16
    with Sharding(World(), "32-true").autocast(product.device):
        assert (product @ product).dtype == torch.float32


def test_half_precision_with_a_scaler_is_refused_for_shards(tmp_path: Path, encoder: Path) -> None:
    options = [*_options(encoder), *QUICK, "strategy=full", "trainer.precision=16-mixed"]
    cell = make_cell(tmp_path, *options, "trainer.devices=2", "trainer.strategy=fsdp")
    with pytest.raises(HarnessError, match=r"trainer\.precision=16-mixed"):
        run_cell(cell)


@pytest.mark.long
def test_one_cell_over_two_nodes_gives_the_result_of_one_device(tmp_path: Path, encoder: Path) -> None:
    """Two launchers on this machine, each with one process; only rank 0 writes results."""
    one = _run(tmp_path / "one", encoder, "task=mini_topic", "strategy=full")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    nodes = []
    for rank in (0, 1):
        folder = tmp_path / f"node-{rank}"
        folder.mkdir()
        command = [
            sys.executable, "-P", "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={rank}",
            "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}", "-m", "harness",
            *_options(encoder, "strategy=full"), *QUICK, "trainer.num_nodes=2",
        ]  # fmt: skip
        nodes.append(subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    for node in nodes:
        output, _ = node.communicate(timeout=300)
        assert node.returncode == 0, output.decode()
    _assert_same(one, tmp_path / "node-0" / "results")
    assert not (tmp_path / "node-1" / "results").exists() or not any(
        (tmp_path / "node-1" / "results").rglob("record.json")
    )


def test_several_nodes_need_a_launcher(tmp_path: Path, encoder: Path) -> None:
    cell = make_cell(tmp_path, *_options(encoder, "strategy=full"), *QUICK, "trainer.num_nodes=2")
    with pytest.raises(HarnessError, match="torchrun --nnodes=2 --node-rank=0 --nproc-per-node=1"):
        run_cell(cell)


@pytest.fixture(scope="module")
def fates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One sweep of cells over two ranks each, in which all that can happen happens."""
    folder = tmp_path_factory.mktemp("fates")
    base = ["trainer.devices=2", "trainer.accelerator=cpu", "encoder=mini_bert", "trainer.epochs=3", *QUICK]
    full = [*base, "strategy=full"]
    told = [
        {"fate": "watched", "overrides": [*base, "strategy=ulmfit", "optimizer.lr=1e-2"]},
        {"fate": "killed", "overrides": full},
        {"fate": "raises", "overrides": full},
        {"fate": "orphaned", "overrides": full},
        {"fate": "hangs", "overrides": full, "config": {"timeout": 4.0}},
    ]
    subprocess.run(
        [sys.executable, "-P", HELPERS / "ddp_runners.py", folder, json.dumps(told)],
        cwd=folder, check=True, timeout=300,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "LOCAL_RANK": "1", "WORLD_SIZE": "4"},
    )  # fmt: skip
    return folder


def _cell(fates: Path, name: str) -> tuple[Path, Record]:
    (path,) = (fates / name / "results").glob("*/*/*/*/seed-0/record.json")
    return path.parent, read_record(path.parent)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_layers_thaw_alike_on_all_ranks(fates: Path) -> None:
    folder, record = _cell(fates, "watched")
    assert record.status == "complete", record.reason
    first, second = (json.loads((folder / f"seen-{rank}.json").read_text()) for rank in (0, 1))
    assert first["weights"] == second["weights"]
    assert [when for when, *_ in first["weights"]] == [
        "before training", "after epoch 1", "after epoch 2", "after epoch 3",
    ]  # fmt: skip
    moved = [
        sum(a != b for a, b in zip(before, after, strict=True)) - 1
        for before, after in zip(first["weights"], first["weights"][1:], strict=False)
    ]
    assert 0 < moved[0] < moved[1] < moved[2], "one more layer an epoch"
    assert first["trainable"]
    assert second["trainable"]
    assert first["seed"] != second["seed"], "dropout is each rank's own"


def test_ranks_see_nothing_of_another_launcher_and_of_the_command(fates: Path) -> None:
    folder, _ = _cell(fates, "watched")
    for rank in (0, 1):
        seen = json.loads((folder / f"seen-{rank}.json").read_text())
        assert (seen["foreign"], seen["hydra"], seen["threads"]) == ([], False, 1)
        assert Path(seen["cwd"]) == fates


@pytest.mark.parametrize(
    ("fate", "said"),
    [
        ("killed", "rank 1 of 2: SIGKILL: killed"),
        ("raises", "rank 1 of 2: ValueError: no luck on this rank"),
        ("orphaned", "SIGKILL: killed"),
    ],
)
def test_a_rank_that_dies_fails_its_cell_at_once_with_its_error(fates: Path, fate: str, said: str) -> None:
    folder, record = _cell(fates, fate)
    assert record.status == "failed"
    assert record.reason.startswith(said)
    taken = json.loads((fates / "finished.json").read_text())[fate] - float((folder / "died").read_text())
    assert taken < SECONDS


@pytest.mark.parametrize("fate", ["watched", "killed", "raises", "orphaned", "hangs"])
def test_no_process_outlives_its_cell(fates: Path, fate: str) -> None:
    folder, record = _cell(fates, fate)
    pids = [int((folder / name).read_text()) for name in ("cell", "rank-0", "rank-1")]
    assert not [pid for pid in pids if _alive(pid)]
    if fate == "hangs":
        assert record.status == "timeout"
