"""Which fastText models cannot continue their pretraining objective; torch-free."""

from __future__ import annotations

from collections.abc import Mapping


def reason_against(options: Mapping[str, object]) -> str | None:
    """Return the reason why a model cannot be adapted (it is compressed, ``.ftz``), or None.

    Args:
        options: the encoder's options; ``path`` and ``member`` are used.
    """
    if str(options.get("path") or options.get("member") or "").endswith(".ftz"):
        return "is a compressed fastText model, which cannot be trained further"
    return None
