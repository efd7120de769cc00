"""``harness [overrides]`` and ``harness -m ...``: Hydra composes, :mod:`harness.sweeps.launch` decides what runs."""

from __future__ import annotations

import contextlib
import glob
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from harness.config.overrides import quote_text
from harness.core.paths import conf_dir
from harness.errors import HarnessError

if TYPE_CHECKING:
    from harness.sweeps import launch

FULL_ERROR = "HYDRA_FULL_ERROR"


def main(argv: list[str]) -> int:
    """Exit code 0; 1 when a cell failed or timed out; 130 when interrupted. HarnessError when refused."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from harness.cli.hydra_errors import explain
    from harness.core.redaction import refuse_secrets
    from harness.sweeps import launch

    if any(a in ("-h", "--help") for a in argv):
        from harness.cli.main import usage

        print(usage())
        return 0
    if {"--cfg", "-c"} & set(argv) and {"-m", "--multirun"} & set(argv):
        raise HarnessError("--cfg shows one configuration: leave -m out and name one value a key")
    refuse_secrets(argv)
    arguments = quote_text(argv)
    full = os.environ.get(FULL_ERROR) == "1"
    driver = launch.driver = launch.Driver()
    try:
        _compose_and_run(arguments)
        if driver.error is not None:
            raise driver.error
    except (HydraException, OmegaConfBaseException) as e:
        _tidy(driver.sweep_dir)
        if full:
            raise
        raise HarnessError(explain(e, argv=arguments)) from e
    except HarnessError:
        _tidy(driver.sweep_dir)
        raise
    except launch.CellFailed as e:
        print(f"harness: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        driver.interrupted = True
    finally:
        launch.driver = None
    if not driver.wanted:  # a dry run
        _tidy(driver.sweep_dir)
    return last_words(driver)


def _compose_and_run(arguments: list[str]) -> None:
    import hydra

    from harness.core.resolvers import register
    from harness.sweeps.launch import run_job

    register()
    entry = hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(run_job)
    with _hydra_raises(), _arguments(arguments):
        entry()


@contextlib.contextmanager
def _hydra_raises() -> Iterator[None]:
    """Hydra shall raise its errors, not print and exit; it asks this variable."""
    before = os.environ.get(FULL_ERROR)
    os.environ[FULL_ERROR] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[FULL_ERROR]
        else:
            os.environ[FULL_ERROR] = before


@contextlib.contextmanager
def _arguments(arguments: list[str]) -> Iterator[None]:
    before = sys.argv
    sys.argv = ["harness", *arguments]
    try:
        yield
    finally:
        sys.argv = before


def last_words(driver: launch.Driver) -> int:
    """Print what came of all cells; the exit code."""
    from harness.sweeps import progress

    if driver.wanted:
        not_run = len(driver.wanted - set(driver.records))
        records = [driver.records[k] for k in sorted(driver.records)]
        for line in progress.summary(records, earlier=len(driver.earlier), not_run=not_run):
            print(line)
        if len(driver.wanted) == 1 and records and records[0].status == "complete":
            print(f"{next(iter(driver.records))}: {progress.score_text(records[0])}")
        # a board without its partial records would be empty
        limited = bool(records) and all(r.partial is not None for r in records)
        partial = " --partial" if limited else ""
        for root in driver.roots:
            print(f"harness leaderboard {shlex.quote(_short(root))}{partial}")
        for line in _archived(driver):
            print(line)
    if driver.interrupted:
        return 130
    return 1 if driver.failed else 0


def _archived(driver: launch.Driver) -> list[str]:
    """Where results are that were moved out of the way and have no successor."""
    from harness.records.lifecycle import ARCHIVE

    complete = {key for key, record in driver.records.items() if record.status == "complete"}
    out = []
    for root in driver.roots:
        left = [Path(key) for key in driver.wanted - complete if root in Path(key).parents]
        kept = [f for f in left if any((root / ARCHIVE).glob(f"*/{glob.escape(str(f.relative_to(root)))}"))]
        if kept:
            cells = "a cell that has" if len(kept) == 1 else f"{len(kept)} cells that have"
            out.append(f"earlier results of {cells} none now are in {_short(root / ARCHIVE)}")
    return out


def _short(path: Path) -> str:
    """Relative to the current directory where it lies below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _tidy(sweep_dir: Path | None) -> None:
    """A refused sweep leaves nothing: Hydra's folder for it goes, and those it made for that, if empty."""
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
