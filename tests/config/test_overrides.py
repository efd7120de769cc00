"""Text values are unchanged by Hydra's parser."""

from __future__ import annotations

from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from harness.config.labels import refuse_booleans, typed_labels
from harness.config.overrides import (
    quote_text,
    refuse_merged_options,
    split_values,
    sweep_lists,
    sweep_parameter,
    text_mapping,
)
from harness.errors import HarnessError


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


@pytest.mark.parametrize(
    ("argument", "swept"),
    [
        ("encoder=[mini_bert,mini_static]", "encoder=mini_bert,mini_static"),
        ("strategy=[ulmfit, full]", "strategy=ulmfit,full"),
        ("encoder@encoder.members.first=[a,b]", "encoder@encoder.members.first=a,b"),
        ("schedule=[linear],cosine", "schedule=linear,cosine"),
        ("logger=[csv]", "logger=csv"),
        ("+experiment=[a,b]", "+experiment=[a,b]"),
        ("encoder.layers=[0,1]", "encoder.layers=[0,1]"),
        ("seed=0,1", "seed=0,1"),
    ],
)
def test_list_of_options_is_a_sweep_over_them(argument: str, swept: str) -> None:
    """Hydra would merge them into one cell that is filed under the last."""
    assert sweep_lists([argument], multirun=True) == [swept]


@pytest.mark.parametrize("group", ["encoder", "strategy", "task", "body", "schedule", "logger", "trainer"])
def test_list_of_options_without_a_sweep_is_refused(group: str) -> None:
    with pytest.raises(HarnessError, match=f"write {group}=a,b and add -m"):
        sweep_lists([f"{group}=[a,b]"], multirun=False)
    assert sweep_lists([f"{group}=[a]"], multirun=False) == [f"{group}=a"]
    with pytest.raises(HarnessError, match=f"^{group}: a defaults list .* names several options"):
        refuse_merged_options({"seed"}, [group, "seed", "results_dir"])
    refuse_merged_options({group, "hydra/launcher"}, [group, "seed"])


def test_parameters_of_a_sweep_in_yaml_are_read_like_the_command_line() -> None:
    assert sweep_parameter("encoder", ["mini_bert", "mini_static"]) == "encoder='mini_bert','mini_static'"
    assert sweep_parameter("task.name", "2014,a") == "task.name='2014','a'"
    assert sweep_parameter("strategy", "frozen") == "strategy='frozen'"
    assert sweep_parameter("seed", "0,1") == "seed=0,1"


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("task.positive=true", "true"),
        ("task.labels=[true,false]", ["true", "false"]),
        ("task.labels=[0, 1.0, no, 'a,b', on hold]", ["0", "1.0", "no", "a,b", "on hold"]),
        ("logger.group=1e5", "1e5"),
        ("logger.tags=[true,2]", ["true", "2"]),
        ("task.columns=[label,text]", ["label", "text"]),
    ],
)
def test_labels_groups_and_tags_stay_the_text_that_was_typed(argument: str, value: object) -> None:
    assert parse(argument) == [value]


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("{true: ja, false: nein}", {"true": "ja", "false": "nein"}),
        ("{0: no, 1: yes}", {"0": "no", "1": "yes"}),
        ("{'a: b': 'c, d', e: \"f\"}", {"a: b": "c, d", "e": "f"}),
        ("{}", {}),
    ],
)
def test_label_names_stay_the_text_that_was_typed(typed: str, names: dict[str, str]) -> None:
    (text,) = parse(f"task.label_names={typed}")
    assert text_mapping("task.label_names", text) == names
    assert typed_labels({"label_names": text})["label_names"] == names


def test_label_names_without_a_colon_are_refused() -> None:
    with pytest.raises(HarnessError, match=r"expected \{LABEL: NAME, ...\}, not 'b'"):
        text_mapping("task.label_names", "{a: x, b}")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"task": {"positive": True}},
            r"task.positive: True is not text; YAML reads yes, on or.*\"yes\"",
        ),
        ({"task": {"labels": ["a", False]}}, r"task.labels: False is not text; YAML reads no, off or false"),
        ({"task": {"label_names": {"0": False}}}, "task.label_names.0: False is not text"),
        ({"task": {"label_names": {True: "a"}}}, "task.label_names: key True: True is not text"),
        ({"logger": {"tags": [True]}}, "logger.tags: True is not text"),
    ],
)
def test_booleans_that_yaml_made_of_labels_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        refuse_booleans(config)


def test_whole_numbers_as_labels_are_text() -> None:
    """Without quotes YAML reads 0 as a number; it is the same label as on the command line."""
    task = {"labels": [0, 1], "positive": 1, "label_names": {0: "no", 1: "yes"}, "name": "x"}
    assert typed_labels(task) == {
        "labels": ["0", "1"],
        "positive": "1",
        "label_names": {"0": "no", "1": "yes"},
        "name": "x",
    }
    refuse_booleans({"task": task})
