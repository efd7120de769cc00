"""The files of a concatenation of encoders; torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.encoders.config import EncoderConfig
from harness.encoders.facts import EncoderFacts
from harness.errors import HarnessError


def member_files(config: Mapping[str, object], cache_dir: Path) -> dict[str, Path]:
    """Return the files of every member, by ``member.role``.

    Raises:
        HarnessError: no members, or unavailable files of a member.
    """
    out: dict[str, Path] = {}
    for name, member in active_members(config.get("members")).items():
        out |= {f"{name}.{role}": path for role, path in member.files(cache_dir).items()}
    return out


def check_members(config: Mapping[str, object], cache_dir: Path) -> EncoderFacts:
    """Check the files of every member (``_check_``).

    Raises:
        HarnessError: no members, or files of a member that cannot be loaded.
    """
    return EncoderFacts.joined(m.check(cache_dir) for m in active_members(config.get("members")).values())


def active_members(members: object) -> dict[str, EncoderConfig]:
    """The members, in the order given.

    Raises:
        HarnessError: there are none.
    """
    parsed = members if isinstance(members, Mapping) else {}
    out = {str(name): member for name, member in parsed.items() if isinstance(member, EncoderConfig)}
    if not out:
        raise HarnessError("encoder.members is empty: choose one with encoder@encoder.members.first=NAME")
    return out
