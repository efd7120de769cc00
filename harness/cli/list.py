"""``harness list [GROUP]``: list the available options of each group, read from the YAML files only."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import yaml

from harness.core.paths import conf_dir
from harness.core.redaction import printable
from harness.errors import HarnessError, did_you_mean

ABOUT = "List the available options of each group, read from the YAML files only."
GROUPS = {
    "encoders": "encoder",
    "strategies": "strategy",
    "tasks": "task",
    "bodies": "body",
    "experiments": "experiment",
}
try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML without its C extension
    from yaml import SafeLoader as _Loader


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="harness list", description=ABOUT)
    parser.add_argument("group", nargs="?", metavar="GROUP", help=f"{', '.join(GROUPS)} (default: all)")
    parser.add_argument(
        "--config-dir", type=Path, metavar="DIR", help="a folder with your own files, as for run"
    )
    args = parser.parse_args(argv)
    if args.group and args.group not in GROUPS:
        raise HarnessError(f"list {args.group}: {did_you_mean(args.group, GROUPS)}")
    if args.config_dir is not None and not args.config_dir.is_dir():
        raise HarnessError(f"--config-dir {args.config_dir}: no such folder")
    folders = [conf_dir(), *([args.config_dir] if args.config_dir else [])]
    for title in [args.group] if args.group else GROUPS:
        if args.group is None:
            print(f"{title} ({GROUPS[title]}=...)")
        for line in lines(GROUPS[title], folders=folders):
            print(printable(line if args.group else f"  {line}"))
    return 0


def lines(group: str, *, folders: list[Path]) -> list[str]:
    """One line per option of the group: its name as in ``group=name`` and its description."""
    # installed files take precedence, as in Hydra
    files = {p.stem: p for folder in reversed(folders) for p in (folder / group).glob("*.yaml")}
    width = max(map(len, files), default=0)
    return [f"{name:<{width}}  {_about(files[name])}".rstrip() for name in sorted(files)]


def _about(path: Path) -> str:
    config = _read(path)
    about = _inherited(path)
    if isinstance(about, Mapping):
        shown = (about.get(k) for k in ("family", "unit", "objective", "size"))
        needs = f"needs {about['where']}" if about.get("where") and config.get("path") is None else None
        needs = "downloaded at first use" if config.get("url") else needs
        return ", ".join(str(v) for v in (*shown, needs) if v is not None)
    if about:
        return str(about)
    first = path.read_text(encoding="utf-8").lstrip().splitlines()[:1]
    return (
        first[0].lstrip("# ")
        if first and first[0].startswith("#") and not first[0][1:].startswith(" @")
        else ""
    )


def _inherited(path: Path, depth: int = 0) -> object:
    """The description (``about``) of a file, merged over those of the files in its defaults list."""
    config = _read(path)
    own: object = config.get("about")
    base_about: object = None
    defaults = config.get("defaults")
    for base in defaults if isinstance(defaults, list) and depth < 5 else []:
        if isinstance(base, str) and base != "_self_" and (path.parent / f"{base}.yaml").is_file():
            base_about = _inherited(path.parent / f"{base}.yaml", depth + 1)
    if isinstance(own, Mapping) and isinstance(base_about, Mapping):
        return {**base_about, **own}
    return own or base_about


def _read(path: Path) -> dict[str, object]:
    try:
        config = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise HarnessError(f"{path}: invalid YAML ({e})") from e
    return config if isinstance(config, dict) else {}
