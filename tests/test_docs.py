"""README, CONTRIBUTING and docs/ agree with the code: links, dotted paths, file names, commands and keys."""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("*.md")])
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4}(harness .*)$", re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
DOTTED = re.compile(r"(?<![\w./-])(?:harness|harness_tasks|benchmarks)(?:\.\w+)+")
PATH = re.compile(r"(?<![\w./<-])(?:harness|tasks|conf|tests|docs|benchmarks|docker)/[\w./-]*[\w-]")
COMMANDS = ("status", "leaderboard", "show", "ensemble", "rerun", "rm", "list", "pretrain")
PLACEHOLDER = re.compile(r"\.\.\.|[A-Z]{2,}")
"""A value such as FILE, DIR_OR_HUB_NAME or ... stands for the reader's own."""


def pages() -> list[object]:
    return [pytest.param(p, id=p.relative_to(ROOT).as_posix()) for p in PAGES]


def current(path: Path) -> str:
    """The page's text; of the changelog without its tables of former names."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"^ *\|.*$", "", text, flags=re.MULTILINE) if path.name == "CHANGELOG.md" else text


def anchors(path: Path) -> set[str]:
    """Anchors of the headings as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", heading.lower()) for heading in headings]
    return {re.sub(r"\s", "-", heading.strip()) for heading in plain}


@pytest.mark.parametrize("path", pages())
def test_links_resolve(path: Path) -> None:
    broken = []
    for target in LINK.findall(path.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = path.parent / name if name else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("path", pages())
def test_dotted_paths_can_be_imported(path: Path) -> None:
    missing = []
    for dotted in sorted(set(DOTTED.findall(current(path)))):
        parts = dotted.split(".")
        if parts[-1] in ("py", "md"):
            continue
        for n in range(len(parts), 0, -1):
            try:
                found: object = importlib.import_module(".".join(parts[:n]))
            except ModuleNotFoundError as e:
                if not f"{dotted}.".startswith(f"{e.name}."):  # an optional dependency such as fastai
                    break
                continue
            if not _has(found, parts[n:]):
                missing.append(dotted)
            break
        else:
            missing.append(dotted)
    assert not missing


def _has(found: object, names: list[str]) -> bool:
    for name in names:
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True


@pytest.mark.parametrize("path", pages())
def test_files_and_folders_that_are_named_exist(path: Path) -> None:
    mentioned = set(PATH.findall(current(path)))
    examples = (
        "conf/encoder/hashed",
        "conf/strategy/top_down",
        "conf/task/multi_label",
        "conf/pretrain/encoder/bag",
    )
    missing = [m for m in sorted(mentioned) if not m.startswith(examples) and not list(ROOT.glob(f"{m}*"))]
    assert not missing


def commands() -> list[tuple[str, list[str]]]:
    """Every ``harness ...`` line of the pages, as page and words, without comments."""
    out = []
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        blocks = [body for language, body in FENCE.findall(text) if language in ("", "sh")]
        for block in [*blocks, *INDENTED.findall(text)]:
            for line in block.replace("\\\n", " ").splitlines():
                if line.split(" ")[0] not in ("harness", "srun", "torchrun"):
                    continue
                words = shlex.split(line, comments=True)
                if "harness" in words:
                    out.append((path.relative_to(ROOT).as_posix(), words[words.index("harness") + 1 :]))
    return out


def test_the_pages_show_commands() -> None:
    assert len(commands()) > 40


def test_the_subcommands_exist() -> None:
    from harness.cli.main import COMMANDS as known

    first = {words[0] for _, words in commands() if words and words[0].isalpha()}
    assert set(COMMANDS) <= set(known)
    assert first <= set(known)


def test_options_of_the_leaderboard_exist(capsys: pytest.CaptureFixture[str]) -> None:
    from harness.cli.main import main

    with contextlib.suppress(SystemExit):
        main(["leaderboard", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    used = {w for _, words in commands() if words[:1] == ["leaderboard"] for w in words if w.startswith("--")}
    assert "--compare" in used
    assert used <= known


def runs(*, pretraining: bool) -> list[object]:
    """Commands that run or pretrain, with the arguments whose values are not the reader's own."""
    out: dict[str, object] = {}
    for page, words in commands():
        if not words or words[0] in set(COMMANDS) - {"pretrain"} or (words[0] == "pretrain") != pretraining:
            continue
        plain = _without_config_dir(words[1:] if pretraining else words)
        if plain is not None:
            overrides = [w for w in plain if not w.startswith("-") and "=" in w]
            out.setdefault(f"{page}: {' '.join(overrides)}", pytest.param(overrides, id=f"{page}-{len(out)}"))
    return list(out.values())


def _without_config_dir(words: list[str]) -> list[str] | None:
    """None for a command that reads the reader's own configuration folder."""
    return None if "--config-dir" in words else words


def single(override: str) -> str | None:
    """One value of a sweep; None where the value is the reader's own file or name."""
    key, _, value = override.partition("=")
    if PLACEHOLDER.search(value):
        return None
    values = value.split(",") if not value.startswith("[") else [value]
    return f"{key}={values[0]}"


@functools.cache
def _registered() -> None:
    from harness.core.resolvers import register

    register()


@pytest.mark.parametrize("overrides", runs(pretraining=False))
def test_configurations_compose(overrides: list[str]) -> None:
    """Every key exists and every named encoder, strategy, task, launcher and experiment, too."""
    from hydra import compose, initialize_config_dir

    _registered()
    kept = [o for o in map(single, overrides) if o is not None]
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        composed = compose("config", overrides=kept, return_hydra_config=True)
    for override in overrides:
        key = override.partition("=")[0]
        assert "/" in key or "@" in key or _selected(composed, key), key


def _selected(composed: object, key: str) -> bool:
    from omegaconf import OmegaConf

    container = OmegaConf.to_container(composed, resolve=False)
    for name in key.split("."):
        if not isinstance(container, dict):
            return False
        if name not in container:
            return name in ("experiment", "debug") and container is not None
        container = container[name]
    return True


@pytest.mark.parametrize("overrides", runs(pretraining=True))
def test_pretraining_configurations_compose(overrides: list[str]) -> None:
    from harness.pretraining.config import compose

    kept = {o.partition("=")[0]: o for o in map(single, overrides) if o is not None}
    for key in ("corpus", "output"):
        kept.setdefault(key, f"{key}=x")
    composed = compose(list(kept.values()))
    for override in overrides:
        key = override.partition("=")[0]
        assert key == "experiment" or _selected_plain(composed, key), key


def _selected_plain(container: object, key: str) -> bool:
    for name in key.split("."):
        if not isinstance(container, dict) or name not in container:
            return False
        container = container[name]
    return True


REJECTED = {"logger.api_key"}
"""Keys that the text mentions because they are an error."""
KEY = re.compile(r"`((?:trainer|optimizer|schedule|strategy|body|logger)\.[\w.]+)(?:=[^`]*)?`")


@pytest.mark.parametrize("path", pages())
def test_keys_in_the_text_exist(path: Path) -> None:
    """Inline code such as `trainer.stride=64` names a key of the configuration or of a pretraining."""
    from omegaconf import OmegaConf

    known = _dotted(OmegaConf.to_container(OmegaConf.load(ROOT / "conf" / "pretrain" / "config.yaml")))
    for group in ("trainer", "optimizer", "schedule", "strategy", "body", "logger"):
        for file in (ROOT / "conf" / group).glob("*.yaml"):
            known |= {f"{group}.{key}" for key in _dotted(OmegaConf.to_container(OmegaConf.load(file)))}
    missing = sorted({key for key in KEY.findall(current(path)) if key not in known | REJECTED})
    assert not missing


def _dotted(container: object, prefix: str = "") -> set[str]:
    if not isinstance(container, dict):
        return set()
    own = {f"{prefix}{key}" for key in container}
    return own | {d for key, value in container.items() for d in _dotted(value, f"{prefix}{key}.")}


def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    """``make docs``."""
    pytest.importorskip("mkdocs")
    import subprocess
    import sys

    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
