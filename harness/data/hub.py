"""Data sets of the Hugging Face hub as tables. ``datasets`` is imported only when one is read.

A set that is still a loading script is read from the Parquet export that the hub keeps of it
(``revision="refs/convert/parquet"``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.data.tables import Table
from harness.errors import HarnessError, did_you_mean

PARQUET = "refs/convert/parquet"
_USUAL = {"train": ("train",), "dev": ("validation", "dev", "valid"), "test": ("test",)}


def load_hub(
    dataset: str,
    splits: Mapping[str, str] | None = None,
    *,
    config: str | None = None,
    revision: str | None = None,
) -> dict[str, Table]:
    """Tables by role.

    Args:
        dataset: id on the hub, ``owner/name``.
        splits: the data set's own split for each role (``{"train": "train", "dev": "validation"}``); None =
            those of the usual names that are there.
        config: the data set's configuration, if it has several.
        revision: branch, tag or commit.

    Raises:
        HarnessError: the hub cannot be reached and nothing is cached, or the data set has no such split.
    """
    loaded = _load(dataset, config, revision)
    tables = {}
    for role, split in (splits or _usual(loaded)).items():
        if split not in loaded:
            raise HarnessError(
                f"hub data set {dataset} has no split {split!r}; {did_you_mean(split, loaded)}"
            )
        tables[role] = _table(loaded[split], f"{dataset} ({split})")
    return tables


def _usual(loaded: Mapping[str, Any]) -> dict[str, str]:
    return {role: name for role, names in _USUAL.items() for name in names[::-1] if name in loaded}


def _load(dataset: str, config: str | None, revision: str | None) -> Mapping[str, Any]:
    import datasets

    options: dict[str, Any] = {"revision": revision} if revision else {}
    try:
        return datasets.load_dataset(dataset, config, **options)
    except Exception as first:
        if not _is_script(first) or revision:
            raise _readable(dataset, first) from first
    try:
        return datasets.load_dataset(dataset, config, revision=PARQUET)
    except Exception as second:
        raise _readable(dataset, second) from second


def _is_script(error: Exception) -> bool:
    return isinstance(error, RuntimeError | ValueError | NotImplementedError) and any(
        word in str(error).lower() for word in ("script", "trust_remote_code")
    )


def _readable(dataset: str, error: Exception) -> HarnessError:
    """One message for the many ways in which the hub, the network or the cache can say no."""
    lines = str(error).strip().splitlines()
    said = f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
    return HarnessError(
        f"hub data set {dataset} could not be loaded ({said}). Without the hub, download it elsewhere "
        "and give its files: task.path=FOLDER, or task.train=FILE task.test=FILE"
    )


def _table(data: Any, source: str) -> Table:
    inner = {c: getattr(f, "feature", f) for c, f in data.features.items()}  # of a list: what it lists
    names = {c: list(f.names) for c, f in inner.items() if getattr(f, "names", None)}
    rows = data.to_list()
    return Table(source, list(data.column_names), rows, list(range(1, len(rows) + 1)), "row", names)
