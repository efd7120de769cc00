"""``harness [overrides]`` and ``harness -m ...``: Hydra composes, :mod:`harness.sweeps.launch` runs cells."""

from __future__ import annotations

import contextlib
import glob
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.config.overrides import quote_text, sweep_lists
from harness.core.paths import conf_dir
from harness.core.redaction import printable
from harness.errors import HarnessError
from harness.processes.forkserver import environment
from harness.sweeps.state import SweepState

FULL_ERROR = "HYDRA_FULL_ERROR"


def main(argv: list[str]) -> int:
    """Run the command. Exit code: 0 done, 1 a cell failed or timed out, 130 interrupted.

    Raises:
        HarnessError: the command is invalid; nothing has been run.
    """
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    from harness.cli.hydra_errors import explain, explain_yaml
    from harness.core.redaction import refuse_secrets
    from harness.sweeps.launch import CellFailed

    if any(a in ("-h", "--help") for a in argv):
        from harness.cli.main import usage

        print(usage())
        return 0
    if {"--cfg", "-c"} & set(argv) and {"-m", "--multirun"} & set(argv):
        raise HarnessError("--cfg shows a single configuration: omit -m, and give one value per key")
    refuse_secrets(argv)
    argv = options_first(argv)
    arguments = quote_text(sweep_lists(argv, multirun=bool({"-m", "--multirun"} & set(argv))))
    full = os.environ.get(FULL_ERROR) == "1"
    state = SweepState()
    try:
        _compose_and_run(arguments, state)
        if state.error is not None:
            raise state.error
    except YAMLError as e:
        _remove_empty(state.sweep_dir)
        raise HarnessError(explain_yaml(e)) from e
    except (HydraException, OmegaConfBaseException) as e:
        _remove_empty(state.sweep_dir)
        if full:
            raise
        raise HarnessError(explain(e, argv=arguments)) from e
    except HarnessError:
        _remove_empty(state.sweep_dir)
        raise
    except CellFailed as e:
        print(f"harness: {printable(str(e))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        state.interrupted = True
    if not state.requested:  # a dry run
        _remove_empty(state.sweep_dir)
    return print_summary(state)


FLAGS = frozenset(
    {
        *("-m", "--multirun", "--run", "-r", "--resolve", "--hydra-help", "--version"),
        *("--shell-completion", "-sc"),
    }
)
VALUED = frozenset(
    {
        *("--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn"),
        *("--config-dir", "-cd", "--info", "-i", "--experimental-rerun"),
    }
)
"""Options of Hydra without and with a value."""


def options_first(argv: Sequence[str]) -> list[str]:
    """Move options to the front, because Hydra accepts no ``key=value`` after ``key=value -m``.

    Raises:
        HarnessError: an unknown option, or a word that is neither an option nor key=value.
    """
    options: list[str] = []
    rest: list[str] = []
    position = 0
    while position < len(argv):
        argument = argv[position]
        name = argument.partition("=")[0]
        if argument[:1] != "-":
            if not name:
                raise HarnessError(f"{argument}: the key is missing; write key=value")
            rest.append(argument)
        elif name in VALUED:
            length = 1 if "=" in argument else 2
            options += argv[position : position + length]
            position += length - 1
        elif argument in FLAGS:
            options.append(argument)
        else:
            key = name.lstrip("-").replace("-", "_")
            raise HarnessError(f"{name}: unknown option; settings are written key=value, such as {key}=...")
        position += 1
    return [*options, *rest]


def _compose_and_run(arguments: list[str], state: SweepState) -> None:
    import hydra

    from harness.core.resolvers import register
    from harness.sweeps.launch import SweepTask

    register()
    entry = hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(
        SweepTask(state)
    )
    with environment({FULL_ERROR: "1"}), _arguments(arguments):  # Hydra then raises its errors
        entry()


@contextlib.contextmanager
def _arguments(arguments: list[str]) -> Iterator[None]:
    before = sys.argv
    sys.argv = ["harness", *arguments]
    try:
        yield
    finally:
        sys.argv = before


def print_summary(state: SweepState) -> int:
    """Print the outcome of all cells and return the exit code."""
    from harness.sweeps import progress

    if state.requested:
        not_run = len(state.requested - set(state.records))
        records = [state.records[k] for k in sorted(state.records)]
        for line in progress.summary(records, already_complete=len(state.already_complete), not_run=not_run):
            print(printable(line))
        if len(state.requested) == 1 and records and records[0].status == "complete":
            print(printable(f"{next(iter(state.records))}: {progress.score_text(records[0])}"))
        # without --partial the leaderboard would be empty
        limited = bool(records) and all(r.partial is not None for r in records)
        partial = " --partial" if limited else ""
        for root in state.results_dirs:
            print(f"harness leaderboard {shlex.quote(_short(root))}{partial}")
        for line in _archived(state):
            print(line)
    if state.interrupted:
        return 130
    return 1 if state.failed else 0


def _archived(state: SweepState) -> list[str]:
    """Name the archive of earlier results that no new result has replaced."""
    from harness.records.lifecycle import ARCHIVE

    complete = {key for key, record in state.records.items() if record.status == "complete"}
    out = []
    for root in state.results_dirs:
        incomplete = [Path(key) for key in state.requested - complete if root in Path(key).parents]
        archived = [
            f for f in incomplete if any((root / ARCHIVE).glob(f"*/{glob.escape(str(f.relative_to(root)))}"))
        ]
        if archived:
            cells = "1 cell" if len(archived) == 1 else f"{len(archived)} cells"
            out.append(f"{cells} without a new result: the earlier results are in {_short(root / ARCHIVE)}")
    return out


def _short(path: Path) -> str:
    """The path, relative to the current directory if it is below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _remove_empty(sweep_dir: Path | None) -> None:
    """Remove Hydra's folder of a rejected sweep, and its parents if they are empty."""
    if (
        sweep_dir is None
        or not sweep_dir.is_dir()
        or {p.name for p in sweep_dir.iterdir()} - {"multirun.yaml"}
    ):
        return
    (sweep_dir / "multirun.yaml").unlink(missing_ok=True)
    for folder in (sweep_dir, sweep_dir.parent, sweep_dir.parent.parent):
        try:
            folder.rmdir()
        except OSError:
            return
