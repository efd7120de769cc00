"""What never leaves this machine in a configuration, nor enters one: secrets and places."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import HarnessError

SECRET = re.compile(r"key|token|secret|passw|credential", re.IGNORECASE)
_LOOKS_LIKE_A_KEY = re.compile(r"[0-9a-f]{40}|wandb_v\d+_\S+", re.IGNORECASE)


def shown_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved configuration for others to see: without secrets, places and what says where it runs."""
    hidden = ("results_dir", "cache_dir", "logger")
    return {k: v for k, v in _shown(config, at="").items() if k not in hidden}


def _shown(value: Any, *, at: str) -> Any:
    if isinstance(value, Mapping):
        kept = (
            (str(k), v) for k, v in value.items() if not SECRET.search(str(k)) and not _is_place(str(k), v)
        )
        return {k: _shown(v, at=k) for k, v in kept}
    if isinstance(value, list | tuple):
        return [_shown(v, at=at) for v in value if not _is_place(at, v)]
    return value


def _is_place(key: str, value: Any) -> bool:
    if not isinstance(value, str):
        return key in PLACES and value is not None
    return (key in PLACES and value != "none") or value.startswith(("/", "~")) or "://" in value


def refuse_secrets(arguments: Sequence[str]) -> None:
    """Refuse a command that would write a secret into its configuration, where all can read it.

    Raises:
        HarnessError: names the key; never the value.
    """
    mine = os.environ.get("WANDB_API_KEY", "")
    for argument in arguments:
        key, sign, value = argument.lstrip("+~").partition("=")
        in_logger = sign and key.startswith("logger.")
        if in_logger and (SECRET.search(key) or _LOOKS_LIKE_A_KEY.search(value)):
            refuse_secret(key)
        if len(mine) > 8 and mine in argument:
            refuse_secret(key)


def refuse_secret(key: str) -> None:
    """Raises HarnessError."""
    raise HarnessError(
        f"{key}: a secret has no place in a configuration, which is stored with every cell; "
        "set WANDB_API_KEY in the environment or run `wandb login`"
    )


PLACES = ("path", "train", "dev", "test", "files", "url")
"""Keys that say where things lie: their content counts, not the place."""
