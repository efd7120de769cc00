"""Keep secrets out of configurations, and secrets and paths out of published ones."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from harness.errors import HarnessError

SECRET = re.compile(r"key|token|secret|passw|credential", re.IGNORECASE)
_LOOKS_LIKE_A_KEY = re.compile(r"[0-9a-f]{40}|wandb_v\d+_\S+", re.IGNORECASE)


def shown_config(config: Mapping[str, object]) -> dict[str, object]:
    """Return a resolved configuration that can be published: without secrets, paths and the logger."""
    hidden = ("results_dir", "cache_dir", "logger")
    return {k: v for k, v in _shown_section(config).items() if k not in hidden}


def _shown_section(section: Mapping[str, object]) -> dict[str, object]:
    items = ((str(k), v) for k, v in section.items())
    return {k: _shown(v, key=k) for k, v in items if not SECRET.search(k) and not _is_place(k, v)}


def _shown(value: object, *, key: str) -> object:
    if isinstance(value, Mapping):
        return _shown_section(value)
    if isinstance(value, list | tuple):
        return [_shown(v, key=key) for v in value if not _is_place(key, v)]
    return value


def _is_place(key: str, value: object) -> bool:
    """Whether the value is a path or an URL."""
    if not isinstance(value, str):
        return key in PLACES and value is not None
    return (key in PLACES and value != "none") or value.startswith(("/", "~")) or "://" in value


def refuse_secrets(arguments: Sequence[str]) -> None:
    """Refuse arguments that would write a secret into the stored configuration.

    Raises:
        HarnessError: names the key, never the value.
    """
    api_key = os.environ.get("WANDB_API_KEY", "")
    for argument in arguments:
        key, sign, value = argument.lstrip("+~").partition("=")
        in_logger = sign and key.startswith("logger.")
        if in_logger and (SECRET.search(key) or _LOOKS_LIKE_A_KEY.search(value)):
            refuse_secret(key)
        if len(api_key) > 8 and api_key in argument:
            refuse_secret(key)


def refuse_secret(key: str) -> None:
    """Raise HarnessError for the key of a secret."""
    raise HarnessError(
        f"{key}: do not put a secret into the configuration, which is stored with every cell; "
        "set WANDB_API_KEY in the environment or run `wandb login`"
    )


PLACES = ("path", "train", "dev", "test", "contexts", "files", "url")
"""Keys of paths: the content of the files is part of a cell's identity, not their path."""
