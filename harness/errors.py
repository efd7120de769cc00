"""The one kind of error a user is meant to see: what is wrong, where, and how to mend it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HarnessError(Exception):
    """Bad input or a bad configuration. The message names the file, line and value and says what to do;
    the command line prints it alone, without a traceback."""


class NewerSchema(HarnessError):
    """A file that a newer harness wrote: whole, but not to be touched here."""


def did_you_mean(value: str, valid: Iterable[str], *, most: int = 3) -> str:
    """A half sentence naming the valid values nearest to ``value``, or all of them when none is near."""
    options = sorted({str(v) for v in valid})
    near = difflib.get_close_matches(value, options, n=most, cutoff=0.55)
    if near:
        return f"did you mean {' or '.join(near)}?"
    if not options:
        return "there are none to choose from"
    shown = ", ".join(options[:20]) + (", ..." if len(options) > 20 else "")
    return f"valid: {shown}"
