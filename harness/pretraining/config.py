"""Configuration of a pretraining run: composition, sizes, validation; does not import torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from harness.core.paths import conf_dir
from harness.core.validation import choice, number, optional, section, text, truth
from harness.errors import HarnessError, did_you_mean
from harness.pretraining.base import TrainerOptions
from harness.pretraining.budget import Budget

FOLDER = "pretrain"
TEXT = ("corpus", "output", "encoding", "column", "split")
"""Keys whose values are strings, whatever they look like."""
BUDGET = ("tokens", "seconds", "steps", "epochs")
QUOTED = (*TEXT, "held_out")
META = ("name", "_target_", "size", "sizes", "about")
"""Keys of an encoder that do not reach ``_target_``."""
UNSET = "???"
_positive_int = optional(number(low=1, whole=True))
_positive = optional(number(low=1e-6))


class BudgetConfig(TypedDict):
    """The section ``budget``, see :class:`harness.pretraining.budget.Budget`."""

    tokens: int | None
    seconds: float | None
    steps: int | None
    epochs: float | None


class PretrainConfig(TypedDict):
    """A validated configuration; the keys are documented in ``conf/pretrain/config.yaml``."""

    corpus: str
    output: str
    encoding: str
    column: str
    split: str
    seed: int
    held_out: float | str
    half_precision: bool
    overwrite: str
    budget: BudgetConfig
    trainer: TrainerOptions
    encoder: dict[str, object]


def compose(arguments: Sequence[str], *, config_dir: Path | None = None) -> dict[str, Any]:
    """Compose the configuration of command-line arguments as plain data.

    Args:
        arguments: ``key=value`` each.
        config_dir: a folder whose ``pretrain/`` extends ``conf/pretrain``, as for cells.

    Raises:
        HarnessError: an invalid argument.
    """
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    _check_arguments(arguments, config_dir)
    try:
        composed = _compose([_quoted(a) for a in arguments], config_dir, resolve=True)
    except (HydraException, OmegaConfBaseException) as e:
        raise HarnessError(_explain(e, arguments, config_dir)) from e
    for key in ("corpus", "output"):
        if composed[key] == UNSET:
            raise HarnessError(f"{key}: required; add {key}=...")
    return composed


def _compose(overrides: list[str], config_dir: Path | None, *, resolve: bool) -> dict[str, Any]:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    search = [] if config_dir is None else [f"hydra.searchpath=['file://{config_dir.absolute() / FOLDER}']"]
    with initialize_config_dir(str(conf_dir() / FOLDER), version_base="1.3"):
        config = hydra_compose("config", overrides=[*overrides, *search])
    container = OmegaConf.to_container(config, resolve=resolve)
    assert isinstance(container, dict)
    return {str(k): v for k, v in container.items()}


def families(config_dir: Path | None = None) -> list[str]:
    """Names of the encoders that can be pretrained."""
    folders = [conf_dir(), *([] if config_dir is None else [config_dir])]
    return sorted({p.stem for folder in folders for p in (folder / FOLDER / "encoder").glob("*.yaml")})


def _check_arguments(arguments: Sequence[str], config_dir: Path | None) -> None:
    names = families(config_dir)
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            raise HarnessError(
                f"{argument}: expected key=value, such as corpus=FILE; see harness pretrain --help"
            )
        if key == "encoder" and value not in names:
            raise HarnessError(f"encoder={value}: cannot be pretrained; {did_you_mean(value, names)}")


def _quoted(argument: str) -> str:
    # Hydra would parse corpus=a=b or held_out=x,y.txt; quoted, the value reaches us as it was given
    from hydra.core.override_parser.types import Quote, QuotedString

    key, _, value = argument.partition("=")
    if key not in QUOTED or value[:1] in ("'", '"') or value in ("", "null"):
        return argument
    return f"{key}={QuotedString(text=value, quote=Quote.single).with_quotes()}"


def _explain(error: Exception, arguments: Sequence[str], config_dir: Path | None) -> str:
    """Name the unknown key and similar valid ones, or give the first lines of Hydra's message."""
    lines = str(error).splitlines()
    encoder = next((a.partition("=")[2] for a in arguments if a.startswith("encoder=")), "bert")
    valid = sorted(_dotted_keys(_compose([f"encoder={encoder}"], config_dir, resolve=False)))
    for argument in arguments:
        key = argument.partition("=")[0].lstrip("+~")
        if "'" + key + "'" in lines[0] and key not in valid:
            # encoder.weight_decay -> encoder.recipe.weight_decay: the right name in the wrong section
            by_name = {v.rpartition(".")[2]: v for v in valid if not v.startswith("encoder.sizes.")}
            match = by_name.get(key.rpartition(".")[2])
            return f"{key}: unknown key; " + (f"did you mean {match}?" if match else did_you_mean(key, valid))
    return "\n".join(lines[:3])


def _dotted_keys(node: Mapping[str, object], prefix: str = "") -> list[str]:
    keys: list[str] = []
    for key, value in node.items():
        keys.append(f"{prefix}{key}")
        if isinstance(value, Mapping):
            keys += _dotted_keys(value, f"{prefix}{key}.")
    return keys


def validate_config(config: Mapping[str, Any]) -> PretrainConfig:
    """Check types and ranges of all values and resolve the encoder's size.

    Raises:
        HarnessError: names the key and the value.
    """
    texts = {key: text(key, config[key]) for key in TEXT}
    return PretrainConfig(
        corpus=texts["corpus"],
        output=texts["output"],
        encoding=texts["encoding"],
        column=texts["column"],
        split=texts["split"],
        seed=number(low=0, high=2**32 - 1, whole=True)("seed", config["seed"]),
        held_out=_held_out(config["held_out"]),
        half_precision=truth("half_precision", config["half_precision"]),
        overwrite=choice("never", "always")("overwrite", config["overwrite"]),
        budget=_budget_section(config["budget"]),
        trainer=_trainer_section(config["trainer"]),
        encoder=resolve_size(config["encoder"]),
    )


def _budget_section(value: object) -> BudgetConfig:
    given = {**dict.fromkeys(BUDGET), **section("budget", value or {})}
    return {
        "tokens": _positive_int("budget.tokens", given["tokens"]),
        "seconds": _positive("budget.seconds", given["seconds"]),
        "steps": optional(number(low=0, whole=True))("budget.steps", given["steps"]),
        "epochs": _positive("budget.epochs", given["epochs"]),
    }


def _trainer_section(value: object) -> TrainerOptions:
    given = section("trainer", value)
    checks = {
        "accelerator": choice("auto", "cpu", "gpu", "cuda", "mps"),
        "devices": number(low=1, whole=True),
        "precision": choice("32-true", "bf16-mixed", "16-mixed"),
        "threads": _positive_int,
        "checkpoint_seconds": number(low=0),
        "log_seconds": number(low=0),
        "logger": choice("csv", "none", "wandb"),
    }
    options = TrainerOptions()
    for key, check in checks.items():
        options[key] = check(f"trainer.{key}", given[key])  # type: ignore[literal-required]
    return options


def _held_out(value: object) -> float | str:
    """A share of the documents, or the path of another text."""
    check = number(low=0, high=0.9)
    if not isinstance(value, str):
        return float(check("held_out", value))
    try:
        share = float(value)
    except ValueError:
        if not Path(value).expanduser().exists():
            raise HarnessError(
                f"held_out={value}: no such file or folder; give a path, or a share such as 0.05"
            ) from None
        return value
    return float(check("held_out", share))


def build_budget(config: PretrainConfig) -> Budget:
    """The training budget of a configuration."""
    return Budget(**config["budget"])


def resolve_size(encoder: Mapping[str, Any]) -> dict[str, object]:
    """Fill an encoder's null options from its size and drop ``sizes``.

    Mappings such as ``recipe`` are filled entry by entry; entries that neither side sets are dropped::

        size: mini, width: null, recipe: {lr: null, warmup: 0.5}, sizes: {mini: {width: 8, recipe: {lr: 0.1}}}
        becomes size: mini, width: 8, recipe: {lr: 0.1, warmup: 0.5}

    Raises:
        HarnessError: an unknown size.
    """
    sizes = encoder.get("sizes") or {}
    size = str(encoder.get("size"))
    if size not in sizes:
        raise HarnessError(f"encoder.size={size}: {did_you_mean(size, sizes)}")
    resolved = {k: v for k, v in encoder.items() if k != "sizes"}
    for key, value in sizes[size].items():
        current = resolved.get(key)
        if isinstance(current, Mapping):
            resolved[key] = {**value, **{k: v for k, v in current.items() if v is not None}}
        elif current is None:
            resolved[key] = value
    return resolved


def target_options(encoder: Mapping[str, object]) -> dict[str, object]:
    """The options that are passed to ``_target_``."""
    return {k: v for k, v in encoder.items() if k not in META}


def work_folder(output: Path) -> Path:
    """Folder of an unfinished run, beside its output."""
    return output.parent / f".{output.name}.unfinished"
