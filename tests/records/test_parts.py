"""The defaults of the typed sections and those of the configuration files are the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields

import pytest
from omegaconf import OmegaConf

from harness.config.schema import TopLevel
from harness.core.paths import conf_dir
from harness.core.validation import made
from harness.records.parts import LoggerConfig, OptimizerConfig, ScheduleConfig, TrainerConfig


def defaults(schema: type) -> dict[str, object]:
    """What a configuration without the section holds: open settings as their marker, else the default."""
    out: dict[str, object] = {}
    for f in fields(schema):
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        out[f.name] = default if f.metadata["auto"] is ... else f.metadata["auto"]
    return out


def configured(file: str) -> dict[str, object]:
    """The keys and values of a file in ``conf``, with lists as tuples."""
    data = OmegaConf.to_container(OmegaConf.load(conf_dir() / file), resolve=False)
    assert isinstance(data, Mapping)
    return {str(k): tuple(v) if isinstance(v, list) else v for k, v in data.items()}


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        (OptimizerConfig, "optimizer/adamw.yaml"),
        (ScheduleConfig, "schedule/auto.yaml"),
        (TrainerConfig, "trainer/default.yaml"),
    ],
)
def test_section_defaults_equal_the_configuration_file(schema: type, file: str) -> None:
    assert defaults(schema) == configured(file)


def test_top_level_defaults_equal_the_configuration_file() -> None:
    values = configured("config.yaml")
    assert defaults(TopLevel) == {k: v for k, v in values.items() if k not in ("defaults", "hydra")}


def test_logger_file_values_equal_the_defaults() -> None:
    values, expected = configured("logger/none.yaml"), defaults(LoggerConfig)
    assert values == {key: expected[key] for key in values}
    assert made(LoggerConfig, values) == LoggerConfig()
    wandb = configured("logger/wandb.yaml")
    assert set(wandb) <= set(expected)
    chosen = ("name", "_target_", "project")  # what selecting wandb sets
    assert {k: v for k, v in wandb.items() if k not in chosen} == {
        k: v for k, v in expected.items() if k not in chosen
    }
