"""Keep secrets out of configurations, secrets and paths out of published ones, and control sequences out of
terminals."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence

from harness.errors import HarnessError

SECRET = re.compile(r"key|token|secret|passw|credential", re.IGNORECASE)
_NAMES_A_SECRET = re.compile(r"(api_?key|access_?key|token|secret|passw(or)?d|credentials?)$", re.IGNORECASE)
_INTERPOLATED = re.compile(r"oc\.env\s*:\s*['\"]?([A-Za-z_]\w*)")
_ENVIRONMENT = ("hydra.job.env_set", "hydra.job.env_copy")
_PASSWORD_IN_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@", re.IGNORECASE)
_LOOKS_LIKE_A_KEY = re.compile(r"[0-9a-f]{40}|wandb_v\d+_\S+", re.IGNORECASE)


_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")
"""Characters that reorder the text around them, and line separators."""


def printable(text: str) -> str:
    """Escape what a terminal would execute: control characters other than line breaks and tabs, lone
    surrogates, and characters that reorder text."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in "\n\t" or not _is_control(c) else _escaped(c) for c in text)


def json_text(value: object, *, indent: int | None = None) -> str:
    """Encode as JSON in which the characters that :func:`printable` escapes are JSON's own escapes."""
    return escaped_json(json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False))


def escaped_json(text: str) -> str:
    """Replace the characters of JSON that :func:`printable` escapes by JSON's own escapes."""
    if text.isascii():
        return text
    return "".join(f"\\u{ord(c):04x}" if c != "\n" and _is_control(c) else c for c in text)


def _is_control(c: str) -> bool:
    return unicodedata.category(c) in ("Cc", "Cs") or c in _BIDI


def _escaped(c: str) -> str:
    return f"\\x{ord(c):02x}" if ord(c) < 0x100 else f"\\u{ord(c):04x}"


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
    """Refuse arguments ``key=value`` that would write a secret into a stored configuration.

    Raises:
        HarnessError: names the key, never the value.
    """
    secrets = _secrets_of_environment()
    for argument in arguments:
        key, sign, value = argument.lstrip("+~").partition("=")
        if _PASSWORD_IN_URL.search(value):
            raise HarnessError(
                f"{key}: do not put a password into a URL, since configurations are stored with every cell; "
                "put it into ~/.netrc"
            )
        in_logger = key.startswith("logger.") and (SECRET.search(key) or _LOOKS_LIKE_A_KEY.search(value))
        # the whole section may be given as one mapping
        in_environment = key.startswith(_ENVIRONMENT) and SECRET.search(argument)
        interpolated = any(_NAMES_A_SECRET.search(name) for name in _INTERPOLATED.findall(value))
        if sign and (in_logger or in_environment or interpolated):
            refuse_secret(key)
        if any(secret in argument for secret in secrets):
            refuse_secret(key)


def refuse_stored_secrets(config: Mapping[str, object], prefix: str = "") -> None:
    """Refuse a composed configuration, before its interpolations are resolved, that contains a secret.

    Raises:
        HarnessError: names the key, never the value.
    """
    for name, value in config.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            refuse_stored_secrets(value, f"{key}.")
        elif value is not None:
            refuse_secrets([f"{key}={value}"])


def _secrets_of_environment() -> list[str]:
    """Values of environment variables with the name of a secret; short ones may occur by chance."""
    return [v for name, v in os.environ.items() if _NAMES_A_SECRET.search(name) and len(v) > 15]


def refuse_secret(key: str) -> None:
    """Raise HarnessError for the key of a secret."""
    raise HarnessError(
        f"{key}: do not put a secret into the configuration, which is stored with every cell; "
        "set WANDB_API_KEY in the environment or run `wandb login`"
    )


PLACES = ("path", "train", "dev", "test", "contexts", "files", "url")
"""Keys of paths: the content of the files is part of a cell's identity, not their path."""
