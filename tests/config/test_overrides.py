"""Text values are unchanged by Hydra's parser."""

from __future__ import annotations

from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from harness.config.overrides import quote_text, split_values


def parse(argument: str) -> list[Any]:
    """Return the values that Hydra reads from one argument after quoting."""
    override = OverridesParser.create().parse_override(quote_text([argument])[0])
    if override.is_sweep_override():
        return [o.rpartition("=")[2].strip("'") for o in override.sweep_string_iterator()]
    return [override.value()]


@pytest.mark.parametrize(
    "text", ["3E120", "2014", "007", "no", "true", "1e-5", "nan", "0x10", "1_000", "yes"]
)
@pytest.mark.parametrize(
    "key", ["task.name", "name", "encoder.path", "task.language", "++task.train", "task"]
)
def test_names_that_look_like_numbers_stay_text(key: str, text: str) -> None:
    """A data set called 2014 or a path called 1e-5 must not become a number."""
    assert parse(f"{key}={text}") == [text]


@pytest.mark.parametrize(
    "value", ["runs/epoch=1-step=2.ckpt", "a b", "a: b", "c:\\d", "it's", 'say "x"', "a\\"]
)
def test_paths_of_any_characters(value: str) -> None:
    """Lightning's checkpoint names contain equals signs, which Hydra rejects in unquoted values."""
    assert parse(f"encoder.path={value}") == [value]


@pytest.mark.parametrize("value", ["'runs/epoch=1.ckpt'", '"runs/epoch=1.ckpt"'])
def test_values_that_are_already_quoted_are_not_quoted_again(value: str) -> None:
    assert parse(f"encoder.path={value}") == ["runs/epoch=1.ckpt"]


def test_commas_in_quotes_are_text() -> None:
    assert parse("task.path='a,b'") == ["a,b"]


def test_a_sweep_of_text_stays_text() -> None:
    assert quote_text(["task.name=a,2014", "task.name='x,y',no"]) == [
        "task.name='a','2014'",
        "task.name='x,y','no'",
    ]
    assert parse("task.name=a,2014") == ["a", "2014"]


@pytest.mark.parametrize(
    "argument",
    [
        *("optimizer.lr=1e-5", "seed=0,1", "-m", "--cfg", "job", "~task.dev", "trainer.epochs=3"),
        *("task.dev=null", "task.name=???", "task.train=[a.csv,b.csv]", "task.files={train: [x]}"),
        *("task.name=choice(a,b)", "encoder.path=glob(*)", "task.label=1", "task.text=0"),
    ],
)
def test_all_other_arguments_are_unchanged(argument: str) -> None:
    assert quote_text([argument]) == [argument]


def test_interpolations_still_interpolate() -> None:
    from omegaconf import OmegaConf

    config = OmegaConf.create({"results_dir": "r", "path": parse("task.path=${results_dir}/x")[0]})
    assert config.path == "r/x"


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1))
def test_any_text_without_hydra_syntax_is_unchanged(text: str) -> None:
    structured = (
        text != text.strip()
        or text[0] in "'\"[{"
        or any(c in text for c in ",(${")
        or text in ("null", "???")
    )
    if not structured:
        assert parse(f"task.name={text}") == [text]


def test_values_are_split_at_top_level_commas_only() -> None:
    assert split_values("a,[b,c],'d,e',f(g,h)") == ["a", "[b,c]", "'d,e'", "f(g,h)"]
