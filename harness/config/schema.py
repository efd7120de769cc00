"""The typed fields of a configuration: each value is brought to its type or refused with its key.

Text given for a number (``lr='1e-5'``) becomes the number; anything else of the wrong type is an error before
any data are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.core.redaction import refuse_secrets
from harness.core.validation import Check, choice, number, optional, or_auto, text, truth
from harness.errors import HarnessError, did_you_mean


def betas(key: str, value: Any) -> list[float]:
    """Adam's two."""
    if not isinstance(value, list) or len(value) != 2:
        raise HarnessError(f"{key}={value!r}: two numbers are wanted, such as [0.9, 0.999]")
    return [number(low=0, high=0.9999999)(key, v) for v in value]


def _tags(key: str, value: Any) -> list[str]:
    words = [v for v in value if isinstance(v, str | int)] if isinstance(value, list) else []
    if not isinstance(value, list) or words != value or not all(1 <= len(str(v)) <= 64 for v in words):
        raise HarnessError(f"{key}={value!r}: a list of words of at most 64 letters is wanted")
    return [str(v) for v in value]


def train_size(key: str, value: Any) -> int | None:
    """How many training examples are used; ``all`` is null."""
    if value is None or value == "all":
        return None
    try:
        return int(_count(key, value))
    except HarnessError as e:
        raise HarnessError(f"{e}, or all") from None


def layers(key: str, value: Any) -> str | list[int]:
    """``top``, ``mix``, or the numbers of the layers to mix, 0 the embeddings; ``auto`` = the recipe's."""
    if value in (None, "top", "mix", "auto"):
        return value or "top"
    if not isinstance(value, list) or not value:
        raise HarnessError(f"{key}={value!r}: top, mix, or a list of layers such as [0,3] is wanted")
    return [int(number(low=0, whole=True)(key, v)) for v in value]


def mix(key: str, value: Any) -> dict[str, Any]:
    """What the learnt mix of layers does beside weighting; what is not set does nothing."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise HarnessError(f"{key}={value!r}: layer_norm and l2 are wanted, such as {{l2: 0.001}}")
    checks: dict[str, Check] = {"layer_norm": truth, "l2": number(low=0)}
    for name in value:
        if name not in checks:
            raise HarnessError(f"{key}.{name}: unknown key, {did_you_mean(str(name), checks)}")
    found = {n: checks[n](f"{key}.{n}", v) for n, v in value.items() if v is not None}
    return {n: v for n, v in found.items() if v}


_count = number(low=1, whole=True)
_rate = number(low=0, high=1e30)
SCHEDULES = ("constant", "linear", "cosine", "slanted")
SECTIONS: dict[str, dict[str, Check]] = {
    "": {
        "seed": number(low=0, high=2**32 - 1, whole=True),
        "limit": optional(_count),
        "timeout": optional(number(low=0.001)),
        "memory_gb": optional(number(low=0.001)),
        "retry": choice("all", "failed", "timeout", "none"),
        "overwrite": choice("never", "failed", "always"),
        "dry_run": truth,
        "results_dir": text,
        "cache_dir": optional(text),
        "feature_cache_gb": number(low=0),
        "fail_fast": truth,
    },
    "optimizer": {
        "name": choice("adamw"),
        "lr": optional(_rate),
        "weight_decay": optional(_rate),
        "betas": optional(betas),
        "eps": number(low=0),
        "max_grad_norm": optional(number(low=1e-12)),
    },
    "logger": {
        "name": text,
        "_target_": optional(text),
        "mode": optional(choice("offline", "online", "disabled")),
        "project": optional(text),
        "entity": optional(text),
        "group": optional(text),
        "tags": optional(_tags),
    },
    "schedule": {"name": choice("auto", *SCHEDULES), "warmup": optional(number(low=0, high=1))},
    "trainer": {
        "epochs": optional(_count),
        "batch_size": optional(_count),
        "eval_batch_size": _count,
        "max_tokens_per_batch": optional(_count),
        "max_length": optional(_count),
        "stride": number(low=0, whole=True),
        "select": choice("best", "last"),
        "patience": or_auto(_count),
        "dropout": optional(number(low=0, high=0.999)),
        "precision": choice("32-true", "bf16-mixed", "16-mixed"),
        "accelerator": choice("auto", "cpu", "gpu", "cuda", "mps"),
        "devices": _count,
        "num_nodes": _count,
        "strategy": choice("auto", "ddp", "fsdp"),
        "threads": optional(_count),
        "gradient_checkpointing": truth,
        "save": truth,
    },
}


FIELDS: dict[str, dict[str, Check]] = {
    "task": {"name": optional(text), "train_size": train_size},
    "strategy": {"name": optional(text)},
    "encoder": {
        "name": optional(text),
        "layers": layers,
        "mix": mix,
        "pairs": choice("auto", "joint", "separate"),
    },
    "body": {
        "hidden_size": number(low=1, whole=True),
        "layers": number(low=1, whole=True),
        "dropout": number(low=0, high=0.999),
        "features": choice("before", "after", "both"),
    },
}
"""Checks of single keys in sections that are open: a part may bring options of its own."""


def typed(config: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``config`` in which every field of :data:`SECTIONS` has its type.

    Raises:
        HarnessError: a value of the wrong type or range, or an unknown key in one of these sections.
    """
    out = dict(config)
    for section, checks in SECTIONS.items():
        values = out if not section else dict(out.get(section) or {})
        prefix = f"{section}." if section else ""
        for key in values if section else ():
            if key not in checks:
                refuse_secrets([f"{prefix}{key}={values[key]}"])
                raise HarnessError(f"{prefix}{key}: unknown key, {did_you_mean(key, checks)}")
        for key, check in checks.items():
            values[key] = check(prefix + key, values.get(key))
        if section:
            out[section] = values
    for section, checks in FIELDS.items():
        if isinstance(out.get(section), Mapping):
            found = {
                k: check(f"{section}.{k}", out[section][k])
                for k, check in checks.items()
                if k in out[section]
            }
            out[section] = {**out[section], **found}
    return out
