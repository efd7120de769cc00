"""The files of an encoder that joins others; torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.core.instantiate import locate
from harness.errors import HarnessError


def member_files(config: Mapping[str, Any], cache_dir: Path) -> dict[str, Path]:
    """The files of every member, by ``member.role``.

    Raises:
        HarnessError: no members, or a member's files cannot be had.
    """
    out: dict[str, Path] = {}
    for name, member in the_members(config.get("members")).items():
        find = member.get("_files_")
        found = locate(find)(member, cache_dir) if find else {}
        out |= {f"{name}.{role}": path for role, path in found.items()}
    return out


def the_members(members: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    """The members that are set, in the order given.

    Raises:
        HarnessError: there are none, or one is not an encoder's configuration.
    """
    out = {}
    for name, member in (members or {}).items():
        if member is None:
            continue
        if not isinstance(member, Mapping) or "_target_" not in member:
            raise HarnessError(
                f"encoder.members.{name}={member!r}: an encoder is wanted; choose one with "
                f"encoder@encoder.members.{name}=NAME (see `harness list`)"
            )
        out[name] = member
    if not out:
        raise HarnessError("encoder.members is empty: choose one with encoder@encoder.members.first=NAME")
    return out
