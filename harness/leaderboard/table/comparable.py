"""Group records that are comparable: the same task, data, test examples and result versions."""

from __future__ import annotations

from collections.abc import Sequence

from harness.records.record import Record

Key = tuple[str, int, str, str, str]
FIELDS = ("data", "test examples", "result.task", "result.engine", "older results of")


def split(records: Sequence[Record]) -> list[tuple[dict[str, str], list[Record]]]:
    """Split the records of each task into comparable groups, the largest group of a task first.

    Cells without a result have no data fingerprint: they go with the other seeds of their cell, or to the
    largest group. Records of a component (encoder, strategy, body) for which there are newer result versions
    are a group of their own.

    Returns:
        per group what distinguishes it from the others of its task (empty if it is the only one), and its
        records.
    """
    newest = _newest(records)
    tasks: dict[str, dict[Key, list[Record]]] = {}
    for r in records:
        if r.status == "complete":
            tasks.setdefault(r.task, {}).setdefault(_key(r, newest), []).append(r)
    out = []
    for task in dict.fromkeys(r.task for r in records):
        groups = tasks.get(task, {("", 0, "", "", ""): []})
        keys = sorted(groups, key=lambda k: (-len(groups[k]), k))
        # reversed: a cell with records in several groups goes to the largest of them
        by_cell = {r.cell: key for key in reversed(keys) for r in groups[key]}
        for r in records:
            if r.task == task and r.status != "complete":
                groups[by_cell.get(r.cell, keys[0])].append(r)
        differ = [i for i in range(len(FIELDS)) if len({key[i] for key in keys}) > 1]
        out += [({FIELDS[i]: str(key[i]) for i in differ if key[i] != ""}, groups[key]) for key in keys]
    return out


def _components(r: Record) -> list[tuple[tuple[str, ...], str]]:
    """Components of a record with their result versions; task and engine are handled by :func:`_key`."""
    names = {
        "encoder": (r.encoder,),
        "strategy": (r.strategy,),
        "body": (r.encoder, r.strategy, str(r.variant.get("body", ""))),
    }
    versions = ((part, r.versions.get(f"result.{part}")) for part in names)
    return [((part, r.task, *names[part]), version) for part, version in versions if version is not None]


def _newest(records: Sequence[Record]) -> dict[tuple[str, ...], str]:
    """The newest result version of each component."""
    out: dict[tuple[str, ...], str] = {}
    for r in records:
        for name, version in _components(r) if r.status == "complete" else ():
            out[name] = max(out.get(name, version), version, key=_number)
    return out


def _number(version: str) -> tuple[int, str]:
    return (int(version), "") if version.isdigit() else (-1, version)


def _key(r: Record, newest: dict[tuple[str, ...], str]) -> Key:
    old = sorted({name[0] for name, version in _components(r) if newest[name] != version})
    task, engine = (r.versions.get(f"result.{part}", "") for part in ("task", "engine"))
    return r.data, r.n_test, task, engine, ", ".join(old)
