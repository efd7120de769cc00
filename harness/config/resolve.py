"""From a composed configuration to a cell: what exactly will run, under which identity, and whether at all.

Torch-free throughout: the driver of a sweep resolves hundreds of cells before anything heavy is loaded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.config.cell_id import GROUPS, cell_id, identity
from harness.config.recipes import load_group, resolve
from harness.config.schema import typed
from harness.config.skips import reason_to_skip
from harness.core.fingerprint import files_fingerprint, signature, slug
from harness.core.instantiate import build, locate
from harness.core.paths import cache_folder
from harness.core.redaction import PLACES
from harness.data.files import fingerprint as text_fingerprint
from harness.errors import HarnessError
from harness.records.cell import Cell
from harness.strategies.adapt import files_of, members
from harness.task import Splits


def prepare(config: Mapping[str, Any], *, overrides: Sequence[str] = ()) -> Cell:
    """Resolve one configuration.

    Args:
        config: the composed configuration as plain data.
        overrides: what was given on the command line (``key=value``), for the variant's name.

    Raises:
        HarnessError: names the key, the value and the mend; nothing has been read or written by then.
    """
    given = typed(config)
    _need_groups(given)
    if given["trainer"]["select"] == "last" and isinstance(given["trainer"]["patience"], int):
        raise HarnessError(
            f"trainer.patience={given['trainer']['patience']}: trainer.select=last runs all epochs and takes "
            "the last one; leave patience out or give trainer.select=best"
        )
    task = _build_task(given["task"])
    resolved = resolve(given)
    _check_windows(resolved["trainer"], truncate=task.truncate)
    reason = reason_to_skip(resolved, n_texts=task.n_texts)
    cache_dir = cache_folder(given["cache_dir"])
    files, sources = ({}, {}) if reason else _files(resolved, cache_dir)
    cell = cell_id(resolved, files)
    folder = Path(given["results_dir"]).expanduser().absolute()
    for part in (resolved["task"]["name"], resolved["encoder"]["name"], resolved["strategy"]["name"], cell):
        folder /= slug(str(part))
    return Cell(
        id=cell,
        seed=given["seed"],
        folder=folder / f"seed-{given['seed']}",
        config=resolved,
        variant=variant(given, resolved, overrides, truncate=task.truncate),
        skip=reason,
        cache_dir=cache_dir,
        files=files,
        sources=sources,
    )


def verify(cell: Cell) -> None:
    """Refuse to go on with files that are no longer those the cell is named after. Cheap while their
    signatures stay; else they are read again.

    Raises:
        HarnessError: a file has changed or gone since the cell was resolved.
    """
    try:
        if all(signature(Path(path)) == tuple(known) for path, known in cell.sources.items()):
            return
    except OSError:
        pass  # what is missing is named below
    files, _ = _files(cell.config, cell.cache_dir)
    changed = [f"the {group}'s" for group in files if files[group] != cell.files.get(group)]
    if changed:
        raise HarnessError(
            f"{' and '.join(changed)} files have changed since the sweep began; run the same command again, "
            "it will be another cell"
        )


def _build_task(config: Mapping[str, Any]) -> Any:
    try:
        return build(config)
    except (TypeError, ValueError, AttributeError) as e:  # an option of a type the task never thought of
        raise HarnessError(f"task {config['name']}: an option has a value of the wrong kind ({e})") from e


def _check_windows(trainer: dict[str, Any], *, truncate: bool) -> None:
    if truncate:
        trainer["stride"] = 0  # texts are cut: there are no windows to stride
    elif trainer["max_length"] is not None and trainer["stride"] >= trainer["max_length"]:
        raise HarnessError(
            f"trainer.stride={trainer['stride']}: must be below trainer.max_length={trainer['max_length']}"
        )


def read_data(cell: Cell) -> tuple[Any, Splits]:
    """The cell's task and its splits, checked: nothing that training would stumble over.

    Raises:
        HarnessError: data that cannot be read, an empty split, or no dev split to choose the epoch on.
    """
    task = _build_task(cell.config["task"])
    splits = task.splits(limit=cell.config["limit"])
    for name, examples in splits.items():
        if not examples and name != "dev":
            raise HarnessError(f"task {task.name}: the {name} split has no examples")
    if not splits.dev and cell.config["trainer"]["select"] == "best":
        raise HarnessError(
            f"task {task.name} has no dev split to choose the epoch on: give one, or trainer.select=last"
        )
    return task, splits


def _files(resolved: Mapping[str, Any], cache_dir: Path) -> tuple[dict[str, str], dict[str, tuple[int, ...]]]:
    """Fingerprints of the encoder's and the task's files, of texts without their line ends; and signatures of
    the files, taken before they were read."""
    out: dict[str, str] = {}
    sources: dict[str, tuple[int, ...]] = {}
    for group, of in (("encoder", None), ("task", text_fingerprint)):
        find = resolved[group].get("_files_")
        files = locate(find)(resolved[group], cache_dir) if find else {}
        if group == "encoder" and resolved["strategy"].get("adapt"):  # its objective may read more
            for place, member in members(resolved["encoder"]):
                more = files_of(member, cache_dir)
                files |= {"/".join((*place, role)): p for role, p in more.items() if p not in files.values()}
        if group == "task":  # how a file is read may follow its ending
            files = {f"{role}{_ending(path)}": path for role, path in files.items()}
        for path in files.values():
            with contextlib.suppress(OSError):  # reading it says what is wrong
                sources[str(path)] = signature(path)
        out[group] = files_fingerprint(files, of=of)
    return out, sources


def variant(
    given: Mapping[str, Any], resolved: Mapping[str, Any], overrides: Sequence[str], *, truncate: bool
) -> dict[str, Any]:
    """Settings that tell this cell from the default one of the same encoder, strategy and task."""
    plain = resolve({**given, **_default_sections()})
    _check_windows(plain["trainer"], truncate=truncate)
    out: dict[str, Any] = {}
    for group in ("body", "optimizer", "schedule", "trainer"):
        mine = _flat(identity(resolved[group], group=group))
        theirs = _flat(identity(plain[group], group=group))
        skip = ("_target_", "result_version")
        differ = {k: v for k, v in mine.items() if k not in skip and theirs.get(k) != v}
        if mine.get("name") == theirs.get("name"):
            differ |= {k: None for k in theirs if k not in mine and k not in skip}
        out |= {group if k == "name" else f"{group}.{k}": v for k, v in differ.items()}
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        group, _, field = key.partition(".")
        if "@" in key:  # a member of a joint encoder, chosen by name
            out[key.partition("@")[2]] = value
        elif group in ("encoder", "strategy", "task") and field and field not in ("name", *PLACES):
            out[key] = _dig(resolved, key, value)
    if out.get("task.train_size", 0) is None:  # all of it is what everyone has
        del out["task.train_size"]
    return dict(sorted(out.items()))


def _default_sections() -> dict[str, Any]:
    names = {"body": "auto", "optimizer": "adamw", "schedule": "auto", "trainer": "default"}
    return {group: load_group(group, name) for group, name in names.items()}


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, item in value.items():
        out |= _flat(item, f"{prefix}{key}.") if isinstance(item, Mapping) else {f"{prefix}{key}": item}
    return out


def _ending(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _dig(config: Mapping[str, Any], dotted: str, default: Any) -> Any:
    value: Any = config
    for part in dotted.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return default
        value = value[part]
    return value


def _need_groups(config: Mapping[str, Any]) -> None:
    for group in GROUPS:
        if not isinstance(config.get(group), Mapping):
            raise HarnessError(f"{group}: nothing is chosen; add {group}=NAME (see `harness list`)")
        if group != "trainer" and config[group].get("name") in (None, "", "???"):
            raise HarnessError(f"{group}.name is missing: give {group}.name=NAME")
    for group in ("encoder", "task"):
        if config[group].get("path") == "???":
            raise HarnessError(f"{group}.path is missing: give {group}.path=PATH")
