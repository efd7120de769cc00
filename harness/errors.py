"""Errors that users see: what is wrong, where, and how to fix it."""

from __future__ import annotations

import difflib
import errno
import traceback
from collections.abc import Iterable
from pathlib import Path


class HarnessError(Exception):
    """Bad input or a bad configuration. The message names the file, line and value and says what to do;
    the command line prints it alone, without a traceback."""


class NewerSchema(HarnessError):
    """A valid file of a newer version of the harness, which this version must not change."""


def did_you_mean(value: str, valid: Iterable[str], *, max_matches: int = 3) -> str:
    """Return a clause that names the valid values closest to ``value``, or all of them if none is close."""
    options = sorted({str(v) for v in valid})
    near = difflib.get_close_matches(value, options, n=max_matches, cutoff=0.55)
    if near:
        return f"did you mean {' or '.join(near)}?"
    if not options:
        return "there are none to choose from"
    shown = ", ".join(options[:20]) + (", ..." if len(options) > 20 else "")
    return f"valid: {shown}"


def describe_error(error: BaseException) -> str:
    """Return an error's message and source line, short enough for a record."""
    if isinstance(error, HarnessError):
        return str(error)
    message = "".join(traceback.format_exception_only(error)).strip()[-2000:]
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{message}: no space left on the disk; free some and run the same command again"
    frames = traceback.extract_tb(error.__traceback__)
    return f"{message}\n({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else message
