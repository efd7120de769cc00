"""The configuration of a pretraining: composing it, choosing the size, checking values; torch-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.core.paths import conf_dir
from harness.core.validation import choice, number, optional, section, text, truth
from harness.errors import HarnessError, did_you_mean
from harness.pretraining.base import Budget

FOLDER = "pretrain"
TEXT = ("corpus", "output", "encoding", "column", "split")
"""Keys whose values are text, whatever they look like."""
BUDGET = ("tokens", "seconds", "steps", "epochs")
QUOTED = (*TEXT, "held_out")
META = ("name", "_target_", "size", "sizes", "about")
_whole = optional(number(low=1, whole=True))
_positive = optional(number(low=1e-6))


def compose(arguments: Sequence[str]) -> dict[str, Any]:
    """The composed configuration as plain data.

    Raises:
        HarnessError: an argument that does not do.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    _refuse_unknown_names(arguments)
    try:
        with initialize_config_dir(str(conf_dir() / FOLDER), version_base="1.3"):
            composed = hydra_compose("config", overrides=[_quoted(a) for a in arguments])
        out = OmegaConf.to_container(composed, resolve=True)
    except (HydraException, OmegaConfBaseException) as e:
        raise HarnessError(_explained(e, arguments)) from e
    assert isinstance(out, dict)
    for key in ("corpus", "output"):
        if out[key] == "???":
            raise HarnessError(f"{key}: has no value yet; give {key}=...")
    return {str(k): v for k, v in out.items()}


def families() -> list[str]:
    """Names of the encoders that can be pretrained."""
    return sorted(p.stem for p in (conf_dir() / FOLDER / "encoder").glob("*.yaml"))


def _refuse_unknown_names(arguments: Sequence[str]) -> None:
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            raise HarnessError(
                f"{argument}: key=value is wanted, such as corpus=FILE; harness pretrain --help"
            )
        if key == "encoder" and value not in families():
            raise HarnessError(f"encoder={value}: cannot be pretrained; {did_you_mean(value, families())}")


def _quoted(argument: str) -> str:
    from hydra.core.override_parser.types import Quote, QuotedString

    key, _, value = argument.partition("=")
    if key not in QUOTED or value[:1] in ("'", '"') or value in ("", "null"):
        return argument
    return f"{key}={QuotedString(text=value, quote=Quote.single).with_quotes()}"


def _explained(error: Exception, arguments: Sequence[str]) -> str:
    """Which key is not known and which are near, or the first lines of what Hydra says."""
    said = str(error).splitlines()
    name = next((a.partition("=")[2] for a in arguments if a.startswith("encoder=")), "bert")
    valid = sorted(_dotted(_plain([f"encoder={name}"])))
    for argument in arguments:
        key = argument.partition("=")[0].lstrip("+~")
        if "'" + key + "'" in said[0] and key not in valid:
            last = {v.rpartition(".")[2]: v for v in valid if not v.startswith("encoder.sizes.")}
            near = last.get(key.rpartition(".")[2])
            return f"{key}: unknown key; " + (f"did you mean {near}?" if near else did_you_mean(key, valid))
    return "\n".join(said[:3])


def _plain(overrides: list[str]) -> Any:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(conf_dir() / FOLDER), version_base="1.3"):
        return OmegaConf.to_container(hydra_compose("config", overrides=overrides), resolve=False)


def _dotted(node: Mapping[str, Any], prefix: str = "") -> list[str]:
    out: list[str] = []
    for key, value in node.items():
        out.append(f"{prefix}{key}")
        if isinstance(value, Mapping):
            out += _dotted(value, f"{prefix}{key}.")
    return out


def checked(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with every value of its type, the encoder's size resolved.

    Raises:
        HarnessError: names the key and the value.
    """
    out = dict(config)
    out["seed"] = number(low=0, high=2**32 - 1, whole=True)("seed", config["seed"])
    out["held_out"] = _held_out(config["held_out"])
    out["half"] = truth("half", config["half"])
    out["overwrite"] = choice("never", "always")("overwrite", config["overwrite"])
    for key in TEXT:
        out[key] = text(key, config[key])
    budget = {**dict.fromkeys(BUDGET), **section("budget", config["budget"] or {})}
    out["budget"] = {
        "tokens": _whole("budget.tokens", budget["tokens"]),
        "seconds": _positive("budget.seconds", budget["seconds"]),
        "steps": optional(number(low=0, whole=True))("budget.steps", budget["steps"]),
        "epochs": _positive("budget.epochs", budget["epochs"]),
    }
    trainer = section("trainer", config["trainer"])
    trainer["threads"] = _whole("trainer.threads", trainer["threads"])
    trainer["devices"] = number(low=1, whole=True)("trainer.devices", trainer["devices"])
    trainer["accelerator"] = choice("auto", "cpu", "gpu", "cuda", "mps")(
        "trainer.accelerator", trainer["accelerator"]
    )
    trainer["precision"] = choice("32-true", "bf16-mixed", "16-mixed")(
        "trainer.precision", trainer["precision"]
    )
    trainer["logger"] = choice("csv", "none", "wandb")("trainer.logger", trainer["logger"])
    for key in ("checkpoint_seconds", "log_seconds"):
        trainer[key] = number(low=0)(f"trainer.{key}", trainer[key])
    out["trainer"] = trainer
    out["encoder"] = sized(config["encoder"])
    return out


def _held_out(value: Any) -> float | str:
    """A share of the documents, or the path of another text."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            if not Path(value).expanduser().exists():
                raise HarnessError(
                    f"held_out={value}: no such file or folder; a share of the documents does as well"
                ) from None
            return str(value)
    return float(number(low=0, high=0.9)("held_out", value))


def budget(config: Mapping[str, Any]) -> Budget:
    return Budget(**config["budget"])


def sized(encoder: Mapping[str, Any]) -> dict[str, Any]:
    """An encoder's options with those that are null as its size says, ``sizes`` left out. In a mapping each
    entry counts for itself; one that neither gives is left out.

    Raises:
        HarnessError: there is no such size.
    """
    sizes = encoder.get("sizes") or {}
    size = str(encoder.get("size"))
    if size not in sizes:
        raise HarnessError(f"encoder.size={size}: {did_you_mean(size, sizes)}")
    out = {k: v for k, v in encoder.items() if k != "sizes"}
    for key, value in sizes[size].items():
        if isinstance(out.get(key), Mapping):
            out[key] = {**value, **{k: v for k, v in out[key].items() if v is not None}}
        elif out.get(key) is None:
            out[key] = value
    return out


def options(encoder: Mapping[str, Any]) -> dict[str, Any]:
    """What reaches ``_target_``."""
    return {k: v for k, v in encoder.items() if k not in META}


def work_folder(output: Path) -> Path:
    """Where what is half done lies: beside the output."""
    return output.parent / f".{output.name}.unfinished"
