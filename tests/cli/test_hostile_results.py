"""A results folder from someone else: no command executes, prints or writes what it asks for."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import yaml

from harness.cli.main import main
from harness.core.redaction import printable
from harness.records.lease import Leases
from harness.records.record import Record, write_config, write_record
from tests.helpers.boards import labels, write

CONTROL = "\x1b]0;owned\x07\x1b[31m\x9b2J\u202e\r"
COMMANDS = [
    ["leaderboard"],
    *(["leaderboard", "--format", f] for f in ("md", "csv", "json", "latex", "html")),
    ["leaderboard", "--by-slice"],
    ["leaderboard", "--cost", "--across", "--curve"],
    ["leaderboard", "--group-by", "encoder", "task.kind"],
    ["leaderboard", "--compare", "a/full", "b/full"],
    ["leaderboard", "--baseline", "a/full"],
    ["status"],
    ["status", "--json"],
    *(
        [c, cell]
        for c in ("show", "rerun", "rm")
        for cell in ("planted", "controls", "linked", "t/linked/s/x")
    ),
    ["ensemble", "planted", "controls"],
    ["ensemble", "a-full", "b-full"],
    ["rm", "{outside}/t/e/s/i/seed-0"],
    ["rm", "../outside/t/e/s/i/seed-0"],
    ["show", CONTROL],
    ["list", "--config-dir", "{outside}/conf"],
]


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Names that execute a module, control sequences everywhere, damaged files, and links to the outside."""
    results, outside = tmp_path / "results", tmp_path / "outside"
    (tmp_path / "planted.py").write_text(
        f"open({str(tmp_path / 'executed')!r}, 'w').close()\nFROM_STATS = run = 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (outside / "t" / "e" / "s" / "i" / "seed-0").mkdir(parents=True)
    (outside / "secret").write_text("not yours")
    (outside / "conf" / "task").mkdir(parents=True)
    (outside / "conf" / "task" / "x.yaml").write_text(yaml.dump({"about": f"a task {CONTROL}"}))
    for name in "ab":
        labels(results, 0.7, task="t", encoder=name, seed=0)
    planted = {"_target_": "planted.run", "_files_": "planted.run", "name": "x"}
    config = dict.fromkeys(("encoder", "task", "body", "logger", "strategy"), planted)
    common = {
        "metric_from_stats": "planted.FROM_STATS",
        "reason": CONTROL,
        "notes": [CONTROL],
        "warnings": [CONTROL],
    }
    write(results, ["x"] * 4, ["x"] * 4, np.ones(4), task="t", cell="planted", **common)
    write(
        results, [CONTROL] * 4, [CONTROL] * 4, np.ones(4), task="t", cell="controls", encoder=CONTROL,
        variant={f"@{CONTROL}": f"=cmd{CONTROL}"}, tags=[[CONTROL]] * 4, degenerate=CONTROL,
        metric=f"m{CONTROL}",
    )  # fmt: skip
    for record in list(results.glob("t/*/*/*/seed-0")):
        write_config(record, config)
    failed = results / "t" / "e" / "s" / "failed" / "seed-0"
    write_record(failed, Record("failed", "t", "e", "s", "failed", 0, reason=CONTROL))
    (failed / "predictions.parquet").write_bytes(b"PAR1")
    linked = results / "t" / "linked" / "s" / "x" / "seed-0"
    linked.mkdir(parents=True)
    for name in ("log.txt", ".lease", "record.json", "config.yaml", "predictions.parquet"):
        (linked / name).symlink_to(outside / "secret")
    (results / "u").symlink_to(outside / "t")
    (results / "t" / "loop").symlink_to(results)
    os.mkfifo(results / "t" / "pipe")
    return tmp_path


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() if p.is_file() else b"" for p in sorted(folder.rglob("*"))}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: printable(" ".join(c)))
def test_nothing_is_executed_printed_or_touched(
    command: list[str], hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _tree(hostile / "outside")
    arguments = [part.format(outside=hostile / "outside") for part in command]
    code = main(
        [arguments[0], *(["results"] if arguments[0] in ("leaderboard", "status") else []), *arguments[1:]]
    )
    out = capsys.readouterr()
    assert code in (0, 2)
    assert not (hostile / "executed").exists()
    assert {c for c in out.out + out.err if unicodedata.category(c) == "Cc" or c == "\u202e"} <= {"\n", "\t"}
    assert "Traceback" not in out.out + out.err
    assert _tree(hostile / "outside") == before
    assert (hostile / "results" / "t" / "a").is_dir()


def test_a_cell_whose_log_is_a_link_gets_a_new_log(tmp_path: Path) -> None:
    """The unfinished cell may run; the file behind the link is not written."""
    from harness.processes.worker import _redirect_output

    (tmp_path / "outside").write_text("kept")
    (tmp_path / "log.txt").symlink_to(tmp_path / "outside")
    child = os.fork()
    if child == 0:
        _redirect_output(tmp_path / "log.txt")
        os.write(1, b"new")
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "outside").read_text() == "kept"
    assert (tmp_path / "log.txt").read_text() == "new"
    (tmp_path / ".lease").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="symbolic links"):
        Leases().take(tmp_path)


def test_a_spreadsheet_formula_is_quoted_and_numbers_are_not() -> None:
    from harness.leaderboard.render.data import _csv_cell

    values = ["=1+1", "+x", "-x", "@x", "\t=x", "-0.5", "+1e3", "-", "x=1", -0.5, None]
    assert [_csv_cell(v) for v in values] == [
        "'=1+1", "'+x", "'-x", "'@x", "'\t=x", "-0.5", "+1e3", "-", "x=1", -0.5, None,
    ]  # fmt: skip


def test_control_characters_are_escaped_and_scripts_are_not() -> None:
    assert printable("a\x1b[2J\x9b\x7f\u202e\ud83d\nb\tc") == "a\\x1b[2J\\x9b\\x7f\\u202e\\ud83d\nb\tc"
    for text in ("한국어", "نی‌خواهم", "👩‍🔬", "été"):
        assert printable(text) == text
