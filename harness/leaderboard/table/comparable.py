"""Which records may share a table: the same task, data, test examples and result versions."""

from __future__ import annotations

from collections.abc import Sequence

from harness.records.record import Record

Key = tuple[str, int, str, str, str]
FIELDS = ("data", "test examples", "result.task", "result.engine", "older results of")


def split(records: Sequence[Record]) -> list[tuple[dict[str, str], list[Record]]]:
    """Records of one task each, apart where they must not be compared; the largest part of a task first.

    Cells that ended badly have no data of their own: they go with their cell, or to the largest part. Records
    of a part (an encoder, a strategy) of which there are newer result versions are a part of their own.

    Returns:
        what sets a part off from the others of its task (empty where it is the only one), and its records.
    """
    newest = _newest(records)
    tasks: dict[str, dict[Key, list[Record]]] = {}
    for r in records:
        if r.status == "complete":
            tasks.setdefault(r.task, {}).setdefault(_key(r, newest), []).append(r)
    out = []
    for task in dict.fromkeys(r.task for r in records):
        parts = tasks.get(task, {("", 0, "", "", ""): []})
        keys = sorted(parts, key=lambda k: (-len(parts[k]), k))
        homes = {r.cell: key for key in reversed(keys) for r in parts[key]}
        for r in records:
            if r.task == task and r.status != "complete":
                parts[homes.get(r.cell, keys[0])].append(r)
        differ = [i for i in range(len(FIELDS)) if len({key[i] for key in keys}) > 1]
        out += [({FIELDS[i]: str(key[i]) for i in differ if key[i] != ""}, parts[key]) for key in keys]
    return out


def _components(r: Record) -> list[tuple[tuple[str, ...], str]]:
    """(part of the harness by name, its result version) of a record, the task and the engine apart."""
    names = {
        "encoder": (r.encoder,),
        "strategy": (r.strategy,),
        "body": (r.encoder, r.strategy, str(r.variant.get("body", ""))),
    }
    found = ((part, r.versions.get(f"result.{part}")) for part in names)
    return [((part, r.task, *names[part]), version) for part, version in found if version is not None]


def _newest(records: Sequence[Record]) -> dict[tuple[str, ...], str]:
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
