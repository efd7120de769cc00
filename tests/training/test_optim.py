"""Parameter groups, schedules and strategies as data."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from harness.errors import HarnessError
from harness.strategies.strategy import Strategy
from harness.training.optim import (
    check_partition,
    frozen_groups,
    lr_lambda,
    parameter_groups,
    total_steps,
)

RATES = {"lr": 1e-3, "weight_decay": 0.01}


class Layers(nn.Module):
    """A minimal encoder with the one method that grouping needs."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)) for _ in range(3)])

    def layer_groups(self) -> list[tuple[str, list[nn.Parameter]]]:
        groups = [("embeddings", list(self.table.parameters()))]
        return groups + [(f"layer_{i}", list(b.parameters())) for i, b in enumerate(self.blocks)]


def groups_of(strategy: Strategy) -> tuple[nn.Module, list[dict]]:
    model = nn.ModuleDict({"encoder": Layers(), "head": nn.Linear(4, 2)})
    if strategy.frozen:
        model["encoder"].requires_grad_(False)
    groups = parameter_groups(model["encoder"], [model["head"]], strategy=strategy, **RATES)
    check_partition(groups, model)
    return model, groups


@pytest.mark.parametrize(
    "strategy",
    [
        Strategy("full", "encoder"),
        Strategy("frozen", "encoder", lr=0.0),
        Strategy("slow", "encoder", lr=1e-6),
        Strategy("relative", "encoder", relative_lr=0.1),
        Strategy("decay", "encoder", layer_decay=0.5),
        Strategy("scratch", "nothing"),
    ],
    ids=lambda s: s.name,
)
def test_groups_are_an_exact_partition(strategy: Strategy) -> None:
    _, groups = groups_of(strategy)
    assert any(g["name"].startswith("encoder") for g in groups) != strategy.frozen


def test_learning_rates_follow_the_strategy() -> None:
    rate = {g["name"]: g["lr"] for g in groups_of(Strategy("decay", "encoder", layer_decay=0.5))[1]}
    assert rate["encoder.layer_2"] == 1e-3
    assert rate["encoder.layer_1"] == 5e-4
    assert rate["encoder.embeddings"] == 1.25e-4
    assert rate["task"] == 1e-3
    slow = {g["name"]: g["lr"] for g in groups_of(Strategy("slow", "encoder", lr=1e-6))[1]}
    assert {v for k, v in slow.items() if k.startswith("encoder")} == {1e-6}
    relative = {g["name"]: g["lr"] for g in groups_of(Strategy("r", "encoder", relative_lr=0.1))[1]}
    assert relative["encoder.embeddings"] == pytest.approx(1e-4)


def test_biases_and_norms_have_no_weight_decay() -> None:
    """Decided by shape, not by name: GPT-2's names differ from BERT's."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wte, self.ln_1, self.c_attn = nn.Embedding(3, 4), nn.LayerNorm(4), nn.Linear(4, 4)
            self.ln_f = nn.LayerNorm(4)

        def layer_groups(self) -> list[tuple[str, list[nn.Parameter]]]:
            return [("embeddings", list(self.parameters()))]

    block, score = Block(), nn.Linear(4, 2, bias=False)
    groups = parameter_groups(block, [score], strategy=Strategy("full", "encoder"), **RATES)
    names = {id(p): n for n, p in [*block.named_parameters(), ("score.weight", score.weight)]}
    undecayed = {names[id(p)] for g in groups if g["weight_decay"] == 0 for p in g["params"]}
    decayed = {names[id(p)] for g in groups if g["weight_decay"] > 0 for p in g["params"]}
    assert undecayed == {"ln_1.weight", "ln_1.bias", "c_attn.bias", "ln_f.weight", "ln_f.bias"}
    assert decayed == {"wte.weight", "c_attn.weight", "score.weight"}


def test_a_tied_embedding_table_is_in_one_group_with_its_learning_rate() -> None:
    """A parameter in two groups would be rejected by torch."""
    encoder, head = Layers(), nn.Linear(4, 5, bias=False)
    head.weight = encoder.table.weight
    strategy = Strategy("slow", "encoder", relative_lr=0.1)
    groups = parameter_groups(encoder, [head], strategy=strategy, **RATES)
    groups_with_table = [g for g in groups if any(p is head.weight for p in g["params"])]
    assert [g["lr"] for g in groups_with_table] == [pytest.approx(1e-4)]
    torch.optim.AdamW(groups)
    distinct = {id(p) for m in (encoder, head) for p in m.parameters()}
    assert sum(len(g["params"]) for g in groups) == len(distinct)


def test_the_partition_check_names_what_is_wrong() -> None:
    model = nn.Linear(2, 2)
    good = {"params": list(model.parameters()), "lr": 1.0, "weight_decay": 0.0}
    check_partition([good], model)
    with pytest.raises(AssertionError, match="missing \\['bias'\\]"):
        check_partition([{**good, "params": [model.weight]}], model)
    with pytest.raises(AssertionError, match="twice \\['weight'\\]"):
        check_partition([good, {**good, "params": [model.weight]}], model)


def test_total_steps_count_an_incomplete_last_batch() -> None:
    assert total_steps(103, 10, 3) == 33
    assert total_steps(103, 40, 3) == 9
    factor = [lr_lambda(t, name="linear", total=33, warmup=0.1) for t in range(33)]
    expected = {0: 0.0, 1: 1 / 3, 3: 1.0, 30: 0.1, 31: 0.066667, 32: 0.033333}
    assert {t: factor[t] for t in expected} == pytest.approx(expected, abs=1e-6)


@given(
    name=st.sampled_from(["constant", "linear", "cosine"]),
    total=st.integers(1, 500),
    warmup=st.floats(0, 1),
)
def test_schedules_stay_in_range_and_never_stop_early(name: str, total: int, warmup: float) -> None:
    factors = [lr_lambda(t, name=name, total=total, warmup=warmup) for t in range(total)]
    assert all(0 <= f <= 1 for f in factors)
    assert all(f > 0 for f in factors[1:])


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"transfer": "all"}, "transfer"),
        ({"transfer": "encoder", "lr": 1e-3, "relative_lr": 0.1}, "exclude"),
        ({"transfer": "encoder", "lr": -1.0}, "lr=-1"),
        ({"transfer": "encoder", "layer_decay": 1.5}, "layer_decay"),
        ({"transfer": "nothing", "lr": 0.1}, "nothing"),
        ({"transfer": "encoder", "realtive_lr": 0.1}, "relative_lr"),
    ],
)
def test_invalid_strategies_are_rejected(bad: dict, word: str) -> None:
    with pytest.raises(HarnessError, match=word):
        Strategy.parse({"name": "x", **bad})


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (0, 0.0003125), (1, 0.00128125), (5, 0.00515625), (9, 0.00903125), (10, 0.01), (11, 0.009892361),
        (55, 0.00515625), (99, 0.000420139),
    ],
)  # fmt: skip
def test_the_slanted_triangle_has_the_published_values(step: int, rate: float) -> None:
    assert 0.01 * lr_lambda(step, name="slanted", total=100, warmup=0.1) == pytest.approx(rate, abs=1e-9)


@pytest.mark.parametrize("total", [1, 2, 8, 15, 19])
def test_a_slanted_triangle_of_few_steps_stays_in_bounds(total: int) -> None:
    rates = [0.01 * lr_lambda(t, name="slanted", total=total, warmup=0.1) for t in range(total)]
    assert all(0.01 / 32 - 1e-12 <= rate <= 0.01 for rate in rates)
    assert rates[0] == pytest.approx(0.0003125)
    if total > 1:
        assert rates[1] == pytest.approx(0.01)


def test_gradual_unfreezing_unfreezes_one_group_per_epoch() -> None:
    layers = ["emb", "rnn0", "rnn1", "rnn2"]
    names = [n for layer in layers for n in (f"encoder.{layer}", f"encoder.{layer}.no_decay")]
    names += ["task", "task.no_decay"]
    strategy = Strategy.parse({"name": "u", "transfer": "encoder", "unfreeze": "gradual"})
    moving = [
        [n for n in names if n not in frozen_groups(names, strategy=strategy, epoch=e) and "no_" not in n]
        for e in range(7)
    ]
    top_down = ["task", "encoder.rnn2", "encoder.rnn1", "encoder.rnn0", "encoder.emb"]
    assert [set(m) for m in moving] == [set(top_down[: min(5, e + 1)]) for e in range(7)]
    both = frozen_groups(names, strategy=strategy, epoch=1)
    assert {n.removesuffix(".no_decay") for n in both} == {f"encoder.{x}" for x in layers[:3]}
    assert len(both) == 6


def test_all_groups_are_unfrozen_after_the_given_number_of_epochs() -> None:
    names = ["encoder.a", "encoder.b", "task"]
    strategy = Strategy.parse({"name": "lp_ft", "transfer": "encoder", "unfreeze": 2})
    frozen = [frozen_groups(names, strategy=strategy, epoch=e) for e in range(4)]
    assert frozen == [{"encoder.a", "encoder.b"}, {"encoder.a", "encoder.b"}, set(), set()]


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"transfer": "encoder", "unfreeze": "slowly"}, "gradual or a number"),
        ({"transfer": "encoder", "unfreeze": 1.5}, "gradual or a number"),
        ({"transfer": "encoder", "lr": 0, "unfreeze": "gradual"}, "no transferred part is trained"),
        ({"transfer": "nothing", "unfreeze": 1}, "no transferred part is trained"),
    ],
)
def test_unfreeze_is_rejected_where_it_has_no_effect(config: dict[str, object], word: str) -> None:
    with pytest.raises(HarnessError, match=word):
        Strategy.parse({"name": "s", **config})
