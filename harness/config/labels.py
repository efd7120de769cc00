"""Texts in a configuration that YAML or Hydra may have read as something else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from harness.config.overrides import TEXT_MAPPINGS, is_text_key, text_mapping
from harness.errors import HarnessError

LABELS = ("labels", "positive")


def typed_labels(task: Mapping[str, object]) -> dict[str, object]:
    """Return the section ``task`` with labels as text; a mapping given on the command line is parsed.

    Raises:
        HarnessError: a mapping that cannot be parsed.
    """
    out = dict(task)
    for key in LABELS:
        value = out.get(key)
        if isinstance(value, list):
            out[key] = [str(v) if _is_whole(v) else v for v in value]
        elif _is_whole(value):
            out[key] = str(value)
    for dotted in TEXT_MAPPINGS:
        key = dotted.removeprefix("task.")
        mapping = text_mapping(dotted, out.get(key))
        if key in out:
            out[key] = _text_keys(mapping) if isinstance(mapping, Mapping) else mapping
    return out


def refuse_booleans(config: Mapping[str, object]) -> None:
    """Refuse booleans where a text is expected: YAML reads ``yes``, ``no``, ``on``, ``off``, ``true`` and
    ``false`` without quotes as booleans, and what was typed is lost.

    Args:
        config: the configuration, with sections by group.

    Raises:
        HarnessError: names the key and the quoted form.
    """
    for group in ("task", "encoder", "logger"):
        section = config.get(group)
        for key, value in section.items() if isinstance(section, Mapping) else ():
            for where, text in _texts(f"{group}.{key}", value):
                if isinstance(text, bool):
                    _refuse(where, text)


def _texts(key: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield the texts of a text key, with the key to name in a message."""
    if key in TEXT_MAPPINGS and isinstance(value, Mapping):
        for k, v in value.items():
            yield f"{key}: key {k!r}", k
            yield f"{key}.{k}", v
    elif is_text_key(key):
        for v in value if isinstance(value, list) else [value]:
            yield key, v


def _refuse(where: str, value: bool) -> None:
    words = "yes, on or true" if value else "no, off or false"
    quoted = "yes" if value else "no"
    raise HarnessError(
        f"{where}: {value} is not text; YAML reads {words} without quotes as a boolean, so write the text in "
        f'quotes, such as "{quoted}"'
    )


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text_keys(mapping: Mapping[object, object]) -> dict[object, object]:
    return {str(k) if _is_whole(k) else k: str(v) if _is_whole(v) else v for k, v in mapping.items()}
