"""``harness pretrain`` in processes that meet a fate: forked from one that has paid for the imports.

Run as a script with a JSON list of jobs, ``{"arguments": [...], "fates": [...], "log": FILE}``, it gives each
job's command once a fate and then once without one, and prints as JSON the exit statuses (-9 = killed). With
``"anew"`` an ``"output"`` that is there goes before each fate, so that there is something to kill.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _while_writing(number: int, share: float) -> None:
    """While the ``number``-th state is written, ``share`` of it being there; all of it: under its name."""
    from harness.pretraining.checkpoint_files import CheckpointFiles

    original, calls = CheckpointFiles.write, []

    def write(self: CheckpointFiles, step: int, what: Callable[[Path], None]) -> None:
        calls.append(step)

        def cut(path: Path) -> None:
            what(path)
            os.truncate(path, int(share * path.stat().st_size))
            _die()

        last = len(calls) == number
        original(self, step, cut if last and share < 1 else what)
        if last:
            _die()

    CheckpointFiles.write = write  # type: ignore[method-assign]


def _around_publishing(after: bool) -> None:
    """Between the last step and publishing, or between that and tidying up."""
    from harness.pretraining import job

    original = job._publish

    def publish(folder: Path, output: Path) -> None:
        if after:
            original(folder, output)
        _die()

    job._publish = publish


def _between_renames() -> None:
    """When the old output is out of the way and the new one is not there yet."""
    original = Path.rename

    def rename(self: Path, target: Any) -> Path:
        if self.name == "result":
            _die()
        return original(self, target)

    Path.rename = rename  # type: ignore[method-assign]


FATES: dict[str, Callable[..., None]] = {
    "writing": _while_writing,
    "publishing": _around_publishing,
    "renaming": _between_renames,
}


def _run(arguments: list[str], fate: list[Any] | None, log: str) -> int:
    """The exit status of one run; of a fate ``["after", seconds]`` the kill comes from outside."""
    child = os.fork()
    if not child:
        code = 70
        try:
            out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(out, 1)
            os.dup2(out, 2)
            if fate and fate[0] != "after":
                FATES[fate[0]](*fate[1:])
            from harness.cli.main import main as command

            code = command(["pretrain", *arguments])
        finally:
            os._exit(code)
    if fate and fate[0] == "after":
        time.sleep(fate[1])
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(jobs: list[dict[str, Any]]) -> None:
    for module in ("harness.processes.preload", "harness.pretraining.trainer", "gensim.models"):
        importlib.import_module(module)
    told = []
    for job in jobs:
        codes = []
        for fate in [*job["fates"], None]:
            if fate and job.get("anew"):
                shutil.rmtree(job["output"], ignore_errors=True)
            codes.append(_run(job["arguments"], fate, job["log"]))
        told.append(codes)
    print(json.dumps(told))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
