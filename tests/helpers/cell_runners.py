"""Replacements for the training engine, importable by workers; the configuration selects their behaviour."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.bodies.config import BodyConfig
from harness.encoders.config import EncoderConfig
from harness.errors import HarnessError
from harness.records.cell import Cell
from harness.records.parts import LoggerConfig, RunOptions, TaskConfig, TrainerConfig
from harness.records.record import Record, write_config, write_record
from harness.strategies.strategy import Strategy
from harness.task import Splits


def make_cell(results: Path, name: str, *, seed: int = 0, skip: str | None = None, **config: Any) -> Cell:
    """Return a cell with only names, trainer, logger and run options set; ``config`` as in a
    configuration."""
    folder = results.absolute() / "t" / "e" / "s" / name / f"seed-{seed}"
    resolved = {
        "task": {"name": "t", "kind": "k"},
        "encoder": {"name": "e"},
        "strategy": {"name": "s"},
        **config,
    }
    options = {f.name for f in fields(RunOptions)}
    return Cell(
        id=name,
        seed=seed,
        folder=folder,
        results_dir=results.absolute(),
        cache_dir=results,
        encoder=EncoderConfig("e", "", options=dict(config.get("encoder") or {})),
        strategy=Strategy(**{"name": "s", **(config.get("strategy") or {})}),
        body=BodyConfig("none", ""),
        task=TaskConfig("t", "", options={"kind": "k", **(config.get("task") or {})}),
        trainer=TrainerConfig(**(config.get("trainer") or {})),
        logger=LoggerConfig(**(config.get("logger") or {})),
        options=RunOptions(**{k: v for k, v in config.items() if k in options}),
        skip=skip,
        resolved=resolved,
    )


def act_of(cell: Cell) -> str:
    """Return the act of the cell; see :func:`act`."""
    return str(cell.resolved.get("act", "ok"))


def with_act(cell: Cell, act: str) -> Cell:
    """Return a copy of the cell with another act."""
    return replace(cell, resolved={**cell.resolved, "act": act})


def prepare(config: dict[str, Any], *, overrides: Any = (), **_: object) -> Cell:
    """Replace harness.config.resolve.prepare: the learning rate is the cell's name, the encoder's path its
    act."""
    rate = str(config["optimizer"]["lr"])
    if rate == "-1":
        raise HarnessError("optimizer.lr=-1: a rate is a number >= 0")
    skip = "makes no sense" if rate == "0" else None
    keys = ("timeout", "fail_fast", "limit", "trainer", "retry", "overwrite", "dry_run")
    cell = make_cell(
        Path(config["results_dir"]),
        rate,
        seed=config["seed"],
        skip=skip,
        **{k: config[k] for k in keys if k in config},
    )
    return with_act(cell, config["encoder"]["path"] if rate in ("5", "5.0") else "ok")


def read_data(cell: Cell) -> tuple[Any, Splits]:
    """Replace harness.records.inputs.read_data by data with a note."""
    return SimpleNamespace(name="t"), Splits([], [], [], notes=["dev: 10 % cut from train with seed 13"])


def act(cell: Cell, progress: Callable[[dict[str, Any]], None]) -> Record:
    """Perform the cell's act: a key of ``_ACTS``, with an argument after a colon (``sleep:SECONDS``)."""
    name, _, argument = act_of(cell).partition(":")
    progress({"phase": "train", "done": 1, "total": 2, "epoch": 1, "epochs": 1, "score": None, "message": ""})
    print(f"running {cell.id}")
    with (cell.results_dir / "runs").open("a") as f:
        f.write(f"{cell.id} {cell.seed}\n")
    _ACTS[name](cell, argument)
    if name == "silent":
        return None  # type: ignore[return-value]
    record = Record(
        status="complete", task="t", encoder="e", strategy="s", cell=cell.id, seed=cell.seed,
        metric="accuracy", dev={"accuracy": 0.5}, test={"accuracy": 0.25},
    )  # fmt: skip
    write_record(cell.folder, record)
    return record


def _raise(cell: Cell, argument: str) -> None:
    raise ValueError(f"boom-{cell.id}")


def _bad(cell: Cell, argument: str) -> None:
    raise HarnessError("data.tsv, line 3: no label; give it one")


def _signal(number: int) -> Callable[[Cell, str], None]:
    return lambda cell, argument: os.kill(os.getpid(), number)


def _workers(cell: Cell, argument: str) -> None:
    """Start a data worker that outlives the cell unless it is killed."""
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    (cell.folder / "worker").write_text(str(worker.pid))
    (cell.folder / "pid").write_text(str(os.getpid()))
    time.sleep(60)


def _environment(cell: Cell, argument: str) -> None:
    names = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
    (cell.folder / "environment").write_text(repr([os.environ.get(n) for n in names]))
    (cell.folder / "path").write_text("\n".join(sys.path))


def _fill(cell: Cell, argument: str) -> None:
    block = b"x" * (int(argument) << 20)
    time.sleep(60)
    del block


def _half(cell: Cell, argument: str) -> None:
    """Kill the process in the middle of writing a file."""
    os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    write_config(cell.folder, cell.resolved)


_ACTS: dict[str, Callable[[Cell, str], None]] = {
    "ok": lambda cell, argument: None,
    "silent": lambda cell, argument: None,
    "raise": _raise,
    "bad": _bad,
    "segfault": _signal(signal.SIGSEGV),
    "killed": _signal(signal.SIGKILL),
    "exit": lambda cell, argument: os._exit(7),
    "sleep": lambda cell, argument: time.sleep(float(argument)),
    "half": _half,
    "workers": _workers,
    "fill": _fill,
    "environment": _environment,
}
