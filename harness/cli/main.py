"""The command line: ``harness [overrides]`` runs a cell, ``harness -m ...`` a sweep; the rest is subcommands.

This module imports nothing heavy: each subcommand is loaded when it is called.
"""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence

from harness.errors import HarnessError, did_you_mean

COMMANDS = {
    "run": ("harness.cli.run", "run one cell, or with -m a sweep (the same without the word run)"),
    "list": ("harness.cli.list", "encoders, strategies, tasks, bodies, experiments that can be named"),
    "status": (
        "harness.cli.status",
        "what a results folder holds, what is running, what failed and why",
    ),
    "leaderboard": (
        "harness.leaderboard.command",
        "means, intervals and tests of differences from a results folder; as text, LaTeX or HTML",
    ),
    "pretrain": ("harness.cli.pretrain", "make an encoder of a family from a plain text corpus"),
    "ensemble": ("harness.cli.ensemble", "average the predictions of two or more cells of a task"),
    "show": ("harness.cli.show", "one cell's record, readable"),
    "rerun": ("harness.cli.rerun", "run cells again from their stored configuration"),
    "rm": ("harness.cli.remove", "archive cells, so that they run again"),
}
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR)
"""What is wrong with a place, not with the program."""
EXAMPLES = """\
  harness task=trec task.path=DIR encoder=glove_6b_100d strategy=frozen
  harness -m task=trec encoder=glove_6b_100d,bert_base_uncased strategy=frozen,full seed=0,1,2
  harness status results
  harness leaderboard results"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Exit code: 0 done, 1 a cell failed, 2 the command is wrong, 130 interrupted, 141 stopped
    since nobody read on what it printed."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except HarnessError as e:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        print(f"harness: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("harness: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # the reader of a pipe (head, less) has had enough
        for stream in (sys.stdout, sys.stderr):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return 128 + signal.SIGPIPE
    except OSError as e:
        if e.errno not in NO_ROOM or os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        print(f"harness: {e.filename2 or e.filename or 'a file'}: {e.strerror}", file=sys.stderr)
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
    """``--config-dir DIR`` before a subcommand moves behind it; any other option there is refused."""
    at, moved = 0, []
    while at < len(arguments) and arguments[at].startswith("-"):
        option, _, value = arguments[at].partition("=")
        if option in ("--config-dir", "-cd") and not value:
            value = arguments[at + 1] if at + 1 < len(arguments) else ""
            at += 1
        at += 1
        moved += ["--config-dir", value] if option in ("--config-dir", "-cd") else [option]
    word = arguments[at] if 0 < at < len(arguments) else ""
    if word not in COMMANDS:
        return arguments
    rest = arguments[at + 1 :]
    if word == "run":
        return [word, *arguments[:at], *rest]
    if word == "list" and set(moved[::2]) == {"--config-dir"}:
        return [word, *rest, *moved]
    raise HarnessError(f"{' '.join(arguments[:at])}: {word} takes no such option; write harness {word} ...")


def _call(module: str, arguments: list[str]) -> int:
    return int(importlib.import_module(module).main(arguments) or 0)


def _version() -> int:
    from importlib.metadata import version

    print(version("transfer-harness"))
    return 0


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {about}" for name, (_, about) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: harness [run] [-m] key=value ...",
            "       harness SUBCOMMAND [--help]",
            "",
            "Which pretrained encoder, transferred how, serves a task best, and is the difference real?",
            "Means over seeds with intervals, and paired tests of differences.",
            "",
            *lines,
            "",
            "examples:",
            EXAMPLES,
            "",
            "  what is not named is task=mini_topic, encoder=mini_bert, strategy=full, seed=0",
            "  harness --cfg job [key=value ...]   prints the composed configuration and runs nothing",
            "  harness --config-dir DIR ...        adds a folder of your own encoder/, task/, ... files",
            "  harness --hydra-help                Hydra's own options",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
