"""The files of a concatenation of encoders; torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.core.instantiate import locate
from harness.errors import HarnessError


def member_files(config: Mapping[str, object], cache_dir: Path) -> dict[str, Path]:
    """Return the files of every member, by ``member.role``.

    Raises:
        HarnessError: no members, or unavailable files of a member.
    """
    out: dict[str, Path] = {}
    for name, member in active_members(config.get("members")).items():
        resolve = member.get("_files_")
        files = locate(str(resolve))(member, cache_dir) if resolve else {}
        out |= {f"{name}.{role}": path for role, path in files.items()}
    return out


def active_members(members: object) -> dict[str, Mapping[str, object]]:
    """Return the members that are set, in the given order.

    Raises:
        HarnessError: no members, or a member that is not an encoder's configuration.
    """
    out = {}
    for name, member in members.items() if isinstance(members, Mapping) else ():
        if member is None:
            continue
        if not isinstance(member, Mapping) or "_target_" not in member:
            raise HarnessError(
                f"encoder.members.{name}={member!r}: expected an encoder; choose one with "
                f"encoder@encoder.members.{name}=NAME (see `harness list`)"
            )
        out[name] = member
    if not out:
        raise HarnessError("encoder.members is empty: choose one with encoder@encoder.members.first=NAME")
    return out
