"""Every key of a configuration takes effect or is refused, at every level."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from harness.config.resolve import prepare
from harness.errors import HarnessError
from tests.helpers.cells import composed

CELLS = {
    "bert": ["encoder=mini_bert", "strategy=full", "task=mini_topic"],
    "elmo": ["encoder=mini_elmo", "strategy=frozen", "task=mini_ner", "strategy.adapt.epochs=1"],
    "concat": [
        *("encoder=concat", "encoder@encoder.members.second=mini_bert", "task=mini_qa"),
        *("strategy=frozen", "encoder.layers=mix", "body=attention_flow"),
    ],
    "ulmfit": ["encoder=mini_ulmfit", "task=mini_sense", "logger=wandb", "strategy=ulmfit"],
    "static": ["encoder=mini_static", "strategy=embedding_init", "task=wnut17", "logger=csv"],
}
DATA = {("task", "label_names")}
"""Sections whose keys are the user's data."""


def sections(node: object, place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the place of every mapping."""
    if isinstance(node, dict):
        yield place
        for key, value in node.items():
            yield from sections(value, (*place, key))


def refusal(config: dict[str, Any]) -> str:
    """Return the error of a configuration; "" if it is accepted."""
    try:
        prepare(config)
    except HarnessError as e:
        return str(e)
    return ""


@pytest.mark.parametrize("name", CELLS)
def test_unknown_keys_are_refused_in_every_section(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.config.portable.resolve_revision", lambda name, revision: None)
    config = composed(*CELLS[name])
    prepare(config)
    places = [place for place in sections(config) if place not in DATA]
    assert len(places) > 10
    for place in places:
        changed: Any = copy.deepcopy(config)
        section = changed
        for key in place:
            section = section[key]
        section["no_such_key"] = 1
        assert "no_such_key" in refusal(changed), f"{'.'.join(place)}.no_such_key is ignored"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["+no_such_key=1"], "no_such_key: unknown key"),
        (["+encoder.recipe.ful.lr=1"], r"encoder.recipe.ful: there is no strategy ful, did you mean full\?"),
        (["+encoder.recipe.full.l_r=1"], r"encoder.recipe.full.l_r: .*did you mean lr\?"),
        (["+body.hidden_size=3"], "body.hidden_size: body=auto .*choose a body"),
        (["body=bilstm", "+body.hiden_size=3"], r"body.hiden_size: unknown key, did you mean hidden_size\?"),
        (["+encoder.pth=x"], r"encoder.pth: unknown key, did you mean path\?"),
        (["+encoder.about.sise=x"], r"encoder.about.sise: unknown key, did you mean size\?"),
    ],
)
def test_messages_suggest_the_key(overrides: list[str], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        prepare(composed("encoder=mini_bert", *overrides))


def test_keys_that_are_interpolated_take_effect() -> None:
    config = composed("+passes={mini_topic: 7}", "trainer.epochs=${passes.mini_topic}")
    assert "passes" not in config
    assert prepare(config).trainer.epochs == 7
