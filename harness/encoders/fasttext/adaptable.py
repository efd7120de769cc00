"""Which fastText models cannot continue their pretraining objective; torch-free."""

from __future__ import annotations

from collections.abc import Mapping


def reason_against(options: Mapping[str, object]) -> str | None:
    """Why a model cannot be adapted: it is compressed (``.ftz``); else None.

    Args:
        options: of the encoder; reads ``path`` and ``member``.
    """
    if str(options.get("path") or options.get("member") or "").endswith(".ftz"):
        return "is a compressed fastText model, which cannot be trained further"
    return None
