"""One wandb run a cell: its id is the cell's, so that what runs again is the same run; it ends as the cell.

A run lies in ``wandb/`` in the cell's folder. A process that is killed cannot end its run: whoever wrote the
cell's record does it afterwards (:func:`end_all`, ``python -m harness.loggers.wandb FOLDER...``), in a process
of its own. What the killed run had on disk is read back from its file, a log in LevelDB's format
(https://github.com/google/leveldb/blob/main/doc/log_format.md) of wandb's records, and kept.
"""

from __future__ import annotations

import netrc
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.core.files import utc_now
from harness.core.redaction import shown_config
from harness.errors import HarnessError
from harness.loggers.factory import FOLDERS, Log, final_values, wandb_mode
from harness.records.cell import Cell
from harness.records.record import Record, read_record

ENDED = ".ended"
STEP = "trainer/global_step"
REACH_SECONDS = 5.0
PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
FLUSH_SECONDS = 2.0
LIMIT = 64  # bytes of a tag
NAME_LIMIT = 128
_BLOCK, _FILE_HEADER, _HEADER = 32768, 7, struct.Struct("<IHB")


class WandbLog(Log):
    """The run of one cell, open until :meth:`close`."""

    def __init__(self, cell: Cell, *, mode: str) -> None:
        from pytorch_lightning.loggers import WandbLogger

        self.folder = cell.folder
        self.run = start(_facts(cell), folder=cell.folder, mode=mode)
        self.lightning = WandbLogger(experiment=self.run)

    def final(self, record: Record) -> None:
        self.run.summary.update(final_values(record))

    def close(self, error: str | None) -> None:
        if error is not None:
            self.run.summary.update({"status": "failed", "reason": error})
        self.run.finish(exit_code=0 if error is None else 1)
        mark_ended(self.folder)


def run_id(cell: str, seed: int) -> str:
    """The same whenever and wherever the cell runs."""
    return f"{cell}-{seed}"


def _facts(cell: Cell) -> dict[str, Any]:
    """What wandb is told of a cell at the start."""
    groups = ("task", "encoder", "strategy")
    names = {g: str((cell.config.get(g) or {}).get("name") or "") for g in groups}
    return facts(cell.config, id=run_id(cell.id, cell.seed), names=names, title=cell.title)


def facts(config: Mapping[str, Any], *, id: str, names: Mapping[str, str], title: str) -> dict[str, Any]:
    """Arguments of ``wandb.init`` for a cell.

    Args:
        config: resolved.
        id: of the run.
        names: of task, encoder and strategy.
        title: the run's name.
    """
    logger = config.get("logger") or {}
    tags = dict.fromkeys(t[:LIMIT] for t in (*names.values(), *(logger.get("tags") or ())) if t)
    return {
        "id": id,
        "name": title[-NAME_LIMIT:],
        "project": logger.get("project") or "transfer-harness",
        "entity": logger.get("entity"),
        "group": (logger.get("group") or "")[-NAME_LIMIT:] or None,
        "job_type": names["strategy"][:LIMIT],
        "tags": list(tags),
        "config": shown_config(config),
    }


def start(facts: Mapping[str, Any], *, folder: Path, mode: str) -> Any:
    """A new run; where the server cannot be reached any more, one on disk."""
    import wandb

    settings = wandb.Settings(
        silent=True,
        console="off",  # the cell's log is beside it already
        save_code=False,
        disable_git=True,
        disable_code=True,
        x_disable_meta=True,  # host, user, command line and paths are nobody's business
        x_disable_machine_info=True,
        x_disable_stats=True,
        x_save_requirements=False,
        x_transaction_log_flush_interval=FLUSH_SECONDS,
        quiet=True,
    )
    if wandb.run is not None:
        wandb.run.finish()
    arguments = {**facts, "dir": str(folder), "resume": "allow", "settings": settings}
    try:
        run = wandb.init(mode=mode, **arguments)  # type: ignore[arg-type]
    except wandb.errors.Error as e:
        if mode != "online":
            raise
        print(f"wandb: {e}; this run stays on disk, wandb sync uploads it", file=sys.stderr)
        run = wandb.init(mode="offline", **arguments)
    run.define_metric(STEP)
    run.define_metric("*", step_metric=STEP, step_sync=True)
    return run


def mark_ended(folder: Path) -> None:
    (folder / FOLDERS["wandb"]).mkdir(exist_ok=True)
    (folder / FOLDERS["wandb"] / ENDED).write_text(utc_now())


def ended(folder: Path, *, since: str) -> bool:
    """Whether the run of the attempt that began at ``since`` was ended."""
    try:
        return (folder / FOLDERS["wandb"] / ENDED).read_text() >= since[:19]
    except OSError:
        return False


def end_all(folders: Sequence[Path], *, note: Callable[[str], None]) -> None:
    """End the runs of cells that were killed, as failed and with the reason in their records."""
    if not folders:
        return
    command = [sys.executable, "-m", "harness.loggers.wandb", *map(str, folders)]
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=60 + 10 * len(folders),
        )  # fmt: skip
        failed = done.stderr.strip().splitlines()[-1:] if done.returncode else []
    except (OSError, subprocess.SubprocessError) as e:
        failed = [str(e)]
    for line in failed:
        note(f"wandb: {len(folders)} runs of killed cells could not be ended ({line})")


def end(folder: Path) -> None:
    """End the cut-off run of the cell in ``folder`` as its record says: one run on disk, with what it had."""
    from harness.config.stored import read_config

    config, record = read_config(folder), read_record(folder)
    place = folder / FOLDERS["wandb"]
    points = [p for file in sorted(place.glob("*run-*/run-*.wandb")) for p in curve(file)]
    shutil.rmtree(place, ignore_errors=True)
    names = {"task": record.task, "encoder": record.encoder, "strategy": record.strategy}
    title = "/".join([*names.values(), record.cell, f"seed-{record.seed}"])
    told = facts(config, id=run_id(record.cell, record.seed), names=names, title=title)
    run = start(told, folder=folder, mode=wandb_mode(config.get("logger") or {}))
    for point in points:
        run.log(point)
    run.summary.update(final_values(record))
    run.finish(exit_code=0 if record.status == "complete" else 1)
    mark_ended(folder)


def curve(file: Path) -> list[dict[str, Any]]:
    """The points that a run's file holds, as they were logged."""
    import json

    out = []
    for record in read_run(file):
        if record.HasField("history"):
            items = {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item}
            out.append({k: v for k, v in items.items() if not k.startswith("_")})
    return out


def read_run(file: Path) -> Iterator[Any]:
    """wandb's records in a run's file, as far as they are whole."""
    from wandb.proto import wandb_internal_pb2

    pb: Any = wandb_internal_pb2
    for content in _chunks(file.read_bytes()):
        record = pb.Record()
        record.ParseFromString(content)
        yield record


def _chunks(data: bytes) -> Iterator[bytes]:
    at, parts = _FILE_HEADER, b""
    while at + _HEADER.size <= len(data):
        left = _BLOCK - at % _BLOCK
        if left < _HEADER.size:  # too little for a header: padding
            at += left
            continue
        _, length, kind = _HEADER.unpack_from(data, at)
        begin = at + _HEADER.size
        if not 1 <= kind <= 4 or begin + length > len(data):
            return
        parts = data[begin : begin + length] if kind in (1, 2) else parts + data[begin : begin + length]
        if kind in (1, 4):
            yield parts
        at = begin + length


def check_online() -> None:
    """Raises HarnessError when online logging has no key, or no way to its server; nothing asks the user."""
    base = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai")
    host, port = base.hostname or "", base.port or (80 if base.scheme == "http" else 443)
    mend = "logger.mode=offline keeps the runs on disk, and wandb sync uploads them later"
    if not _has_key(host):
        raise HarnessError(
            f"logger.mode=online: there is no API key for {host}; set WANDB_API_KEY in the environment or "
            f"run `wandb login`; {mend}"
        )
    if any(
        os.environ.get(n) for n in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY")
    ):
        return
    try:
        socket.create_connection((host, port), timeout=REACH_SECONDS).close()
    except OSError as e:
        raise HarnessError(f"logger.mode=online: {host} cannot be reached ({e}); {mend}") from e


def _has_key(host: str) -> bool:
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    files = [os.environ["NETRC"]] if os.environ.get("NETRC") else ["~/.netrc", "~/_netrc"]
    for name in files:
        try:
            if netrc.netrc(os.path.expanduser(name)).authenticators(host):
                return True
        except (OSError, netrc.NetrcParseError):
            continue
    return False


if __name__ == "__main__":
    for _folder in sys.argv[1:]:
        end(Path(_folder))
