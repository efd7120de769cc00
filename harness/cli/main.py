"""Entry point: ``harness [overrides]`` runs a cell, ``harness -m ...`` a sweep; the rest are subcommands.

The module of a subcommand is imported only when it is called.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence

from harness.core.redaction import printable
from harness.errors import HarnessError, did_you_mean
from harness.processes import streams

COMMANDS = {
    "run": ("harness.cli.run", "run one cell, or a sweep with -m (the word run is optional)"),
    "list": ("harness.cli.list", "list the available encoders, strategies, tasks, bodies and experiments"),
    "status": ("harness.cli.status", "count the cells of a results folder; show running and failed ones"),
    "leaderboard": (
        "harness.leaderboard.command",
        "means, confidence intervals and paired tests, as text, LaTeX or HTML",
    ),
    "pretrain": ("harness.cli.pretrain", "pretrain an encoder on a plain text corpus"),
    "ensemble": ("harness.cli.ensemble", "average the predictions of two or more cells of a task"),
    "show": ("harness.cli.show", "print the record of a cell"),
    "rerun": ("harness.cli.rerun", "run cells again from their stored configuration"),
    "rm": ("harness.cli.remove", "archive cells, so that the next sweep runs them again"),
}
WITH_CONFIG_DIR = ("list", "pretrain", "ensemble", "leaderboard", "rerun", "show")
"""Subcommands that take ``--config-dir``."""
UNUSABLE_PATH = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EISDIR,
    errno.ENOTDIR,
)
"""Errors of a path or disk that the user has to fix, not errors of the program."""
ABOUT = "Benchmark pretrained encoders and transfer strategies on your task, with 95 % confidence intervals."
EXAMPLES = """\
  harness task=trec task.path=DIR encoder=glove_6b_100d strategy=frozen
  harness -m task=trec encoder=glove_6b_100d,bert_base_uncased strategy=frozen,full seed=0,1,2
  harness status results
  harness leaderboard results"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Exit code: 0 done, 1 a cell failed, 2 invalid command, 130 interrupted, 141 broken pipe.
    """
    streams.open_missing()
    arguments = list(sys.argv[1:] if argv is None else argv)
    with streams.tolerant("stderr", *(["stdout"] if _runs(arguments) else [])):
        return _main(arguments)


def _runs(arguments: list[str]) -> bool:
    """Whether the command runs cells or pretrains: it goes on if its output cannot be written."""
    with contextlib.suppress(HarnessError):
        arguments = _command_first(arguments)
    return not arguments or arguments[0] not in COMMANDS or arguments[0] in ("run", "rerun", "pretrain")


def _main(arguments: list[str]) -> int:
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except HarnessError as e:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        print(f"harness: {printable(str(e))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("harness: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # the reader of the pipe (head, less) has exited
        streams.discard(sys.stdout)
        return 128 + signal.SIGPIPE
    except OSError as e:
        if e.errno not in UNUSABLE_PATH or os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        if e.filename is None:
            streams.discard(sys.stdout)
        where = e.filename2 or e.filename or "standard output or a file"
        print(f"harness: {printable(str(where))}: {e.strerror}", file=sys.stderr)
        return 2


def _dispatch(arguments: list[str]) -> int:
    arguments = _command_first(arguments)
    first = arguments[0] if arguments else ""
    if not arguments or first in ("-h", "--help", "help"):
        print(usage())
        return 0
    if first == "--version":
        return _version()
    if first in COMMANDS:
        return _call(COMMANDS[first][0], arguments[1:])
    if first and "=" not in first and first[0] not in "-+~":
        raise HarnessError(f"{first}: neither a subcommand nor key=value; {did_you_mean(first, COMMANDS)}")
    return _call(COMMANDS["run"][0], arguments)


def _command_first(arguments: list[str]) -> list[str]:
    """Move ``--config-dir DIR`` from before a subcommand to after it; reject any other option there."""
    position, moved = 0, []
    while position < len(arguments) and arguments[position].startswith("-"):
        option, _, value = arguments[position].partition("=")
        if option in ("--config-dir", "-cd") and not value:
            position += 1
            value = arguments[position] if position < len(arguments) else ""
        position += 1
        moved += ["--config-dir", value] if option in ("--config-dir", "-cd") else [option]
    word = arguments[position] if 0 < position < len(arguments) else ""
    if word not in COMMANDS:
        return arguments
    options, rest = arguments[:position], arguments[position + 1 :]
    if word == "run":
        return [word, *options, *rest]
    if word in WITH_CONFIG_DIR and set(moved[::2]) == {"--config-dir"}:
        return [word, *rest, *moved]
    raise HarnessError(f"{' '.join(options)}: not an option of {word}; write harness {word} ...")


def _call(module: str, arguments: list[str]) -> int:
    return int(importlib.import_module(module).main(arguments) or 0)


def _version() -> int:
    from importlib.metadata import version

    print(version("transfer-harness"))
    return 0


def usage() -> str:
    """The text of ``harness --help``."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {about}" for name, (_, about) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: harness [run] [-m] key=value ...",
            "       harness SUBCOMMAND [--help]",
            "",
            ABOUT,
            "A cell is one encoder, strategy, task and seed; a sweep runs many cells.",
            "",
            *lines,
            "",
            "examples:",
            EXAMPLES,
            "",
            "  defaults: task=mini_topic, encoder=mini_bert, strategy=full, seed=0",
            "  harness --cfg job [key=value ...]   print the composed configuration and run nothing",
            "  harness --config-dir DIR ...        add a folder with your own encoder/, task/, ... files",
            "  harness --hydra-help                options of Hydra",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
