"""A command goes on if what it prints cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli.main import _runs
from harness.processes.streams import TolerantStream
from tests.helpers.paths import PYTHONPATH

ENVIRONMENT = {**os.environ, "PYTHONPATH": PYTHONPATH}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_tolerant_stream_discards_what_cannot_be_written() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        stream = TolerantStream(full)
        assert stream.write("x" * 100_000) == 100_000
        stream.flush()
        stream.write("y")
        stream.flush()
        assert not stream.isatty()


def test_a_pipe_without_reader_is_silent() -> None:
    for end in (0, 1):
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as pipe:
            stream = TolerantStream(pipe)
            stream.write("x" * (100_000 * end))
            stream.flush()


@pytest.mark.parametrize(
    ("arguments", "runs"),
    [
        ([], True), (["-m", "seed=0"], True), (["rerun", "x"], True),
        (["--config-dir", "c", "pretrain"], True), (["leaderboard"], False), (["status", "--watch"], False),
    ],
)  # fmt: skip
def test_only_commands_that_run_cells_ignore_their_output(arguments: list[str], runs: bool) -> None:
    assert _runs(arguments) == runs


@pytest.mark.parametrize(
    ("redirection", "code"),
    [(">&-", 0), ("2>&-", 0), ("<&- >&- 2>&-", 0), (">/dev/full", 2), ("| head -c 1 >/dev/null", 141)],
)
def test_streams_that_are_closed_full_or_without_reader(redirection: str, code: int) -> None:
    """One line on a full disk; a pipe whose reader has gone is silent, as for other commands."""
    command = f"{sys.executable} -m harness list encoders {redirection}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False
    )
    assert done.returncode in (code, 0 if code == 141 else code)  # head may read all before it exits
    assert done.stderr.splitlines() == (
        ["harness: standard output or a file: No space left on device"] if code == 2 else []
    )
