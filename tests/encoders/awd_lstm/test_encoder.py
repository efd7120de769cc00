"""The AWD-LSTM encoder: parity with fastai, dropout, directions, out-of-vocabulary words."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import harness
from harness.data.text import Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import TokenBatch, pool, pooled_size, word_states
from harness.encoders.awd_lstm.bidirectional import BidirectionalAwdLstmEncoder
from harness.encoders.awd_lstm.encoder import AwdLstmEncoder, load, load_language_model
from harness.encoders.awd_lstm.model import AwdLstm, AwdLstmLM, Dropouts, Sizes, WeightDropLSTM
from harness.encoders.base import Encoder
from harness.errors import HarnessError
from tests.helpers.tiny_awd_lstm import make_awd_lstm, make_both, tiny_lm, vocabulary

DATA = Path(__file__).parent / "data"
GOLDEN = json.loads((DATA / "awd_lstm_expected.json").read_text(encoding="utf-8"))


def tokens_of(encoder: Encoder, *texts: str, **windowing: Any) -> TokenBatch:
    rows = encoder.tokenizer.tokenize([Text.from_string(t) for t in texts], WindowOptions(**windowing))
    return TokenBatch.collate([r for rs in rows for r in rs], pad=encoder.tokenizer.pad)


def padded(rows: list[list[int]]) -> TokenBatch:
    mask = torch.arange(max(map(len, rows)))[None] < torch.tensor([len(r) for r in rows])[:, None]
    ids = torch.zeros(mask.shape, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    zero, none = torch.zeros_like(ids), torch.zeros(len(rows), dtype=torch.long)
    spans = torch.stack([zero, zero], -1)
    return TokenBatch({"input_ids": ids}, mask, zero - 1, spans, zero, zero[:, :1] - 1, none, none)


@pytest.fixture
def golden(tmp_path: Path) -> AwdLstmEncoder:
    return load(name="golden", path=DATA / "awd_lstm", cache_dir=tmp_path).eval()


@pytest.fixture
def tiny(tmp_path: Path) -> AwdLstmEncoder:
    return load(name="tiny", path=make_awd_lstm(tmp_path / "m"), cache_dir=tmp_path)


@torch.no_grad()
def test_states_pooled_vectors_and_classifier_equal_fastai(golden: AwdLstmEncoder) -> None:
    """Use a file saved by fastai with its optimizer, and texts of up to 160 tokens, in chunks of 72."""
    tokens = padded(GOLDEN["rows"])
    states = golden(tokens).last_hidden_state
    for row, expected in zip(states, GOLDEN["states"], strict=True):
        assert np.abs(row[: len(expected)].numpy() - np.array(expected)).max() < 1e-6
        assert (row[len(expected) :] == 0).all()
    pooled = pool(states, tokens, golden.pooling)
    assert np.abs(pooled.numpy() - np.array(GOLDEN["pooled"])).max() < 1e-6
    out = classifier(GOLDEN["head"])(pooled)
    assert np.abs(out.numpy() - np.array(GOLDEN["classifier"])).max() < 1e-5


def classifier(weights: dict[str, Any]) -> nn.Module:
    """Build fastai's classifier: batch norm, linear, ReLU, batch norm, linear."""
    state = {k: torch.tensor(v) for k, v in weights.items()}
    first, second = state["0.2.weight"], state["1.2.weight"]

    def block(linear: torch.Tensor) -> list[nn.Module]:
        return [
            nn.BatchNorm1d(linear.shape[1]),
            nn.Identity(),
            nn.Linear(linear.shape[1], linear.shape[0], bias=False),
        ]

    out = nn.Sequential(nn.Sequential(*block(first), nn.ReLU()), nn.Sequential(*block(second)))
    if "1.2.bias" in state:
        out[1][2] = nn.Linear(second.shape[1], second.shape[0])
    out.load_state_dict(state)
    return out.eval()


@torch.no_grad()
def test_logits_and_ids_equal_fastai(golden: AwdLstmEncoder) -> None:
    model, words = golden.language_model()
    logits = model.eval()(torch.tensor([GOLDEN["rows"][1]])).logits[0, -1]
    size = len(GOLDEN["logits"])
    assert words[:size] == golden.vocabulary.words
    assert np.abs(logits[:size].numpy() - np.array(GOLDEN["logits"])).max() < 1e-6
    numbers = {w: i for i, w in enumerate(golden.vocabulary.words)}
    ids = tokens_of(golden, GOLDEN["sentences"][1]).inputs["input_ids"][0].tolist()
    assert ids == [numbers[t] for t in GOLDEN["tokens"][1]]


def test_weights_drop_in_training_only() -> None:
    """Weight dropout must not change the stored weights, and must be off in eval mode."""
    layer = WeightDropLSTM(4, 5, dropout=0.5)
    raw = {k: v.clone() for k, v in layer.state_dict().items()}
    x = torch.randn(2, 7, 4)
    layer.train()
    layer(x)[0].sum().backward()
    assert layer.weight_hh_l0.grad is not None
    assert (layer.weight_hh_l0.grad == 0).any(), "no gradient where a weight dropped out"
    layer.eval()
    with torch.no_grad():
        assert torch.equal(layer(x)[0], layer(x)[0])
        assert torch.equal(layer(x)[0], nn.LSTM.forward(layer, x)[0])
        layer.train()
        assert not torch.equal(layer(x)[0], layer(x)[0])
    assert all(torch.equal(v, raw[k]) for k, v in layer.state_dict().items())
    copied = copy.deepcopy(layer).eval()
    assert torch.equal(copied(x)[0], layer.eval()(x)[0])


def test_every_dropout_acts_in_training_and_none_in_eval() -> None:
    ids, lengths = torch.randint(0, 30, (2, 5)), torch.tensor([5, 5])
    for name in ("embedding", "input", "hidden", "weight"):
        rates = Dropouts(**{**dict.fromkeys(Dropouts.__slots__, 0.0), name: 0.5})
        core = AwdLstm(Sizes(30, 6, 10, 3), rates)
        core.train()
        assert not torch.equal(core.read(ids, lengths)[-1], core.read(ids, lengths)[-1]), name
        core.eval()
        assert torch.equal(core.read(ids, lengths)[-1], core.read(ids, lengths)[-1])
    core = AwdLstm(Sizes(30, 6, 10, 3), Dropouts(0.0, 0.0, 0.0, 0.0, 0.5))
    model = AwdLstmLM(core).train()
    assert torch.equal(core.read(ids, lengths)[-1], core.read(ids, lengths)[-1])
    assert not torch.equal(model(ids).logits, model(ids).logits)


def test_backpropagation_is_truncated_every_72_tokens() -> None:
    core = AwdLstm(Sizes(200, 6, 10, 3), Dropouts(0, 0, 0, 0, 0)).train()
    ids, lengths = torch.arange(200)[None], torch.tensor([200])
    layers = core.read(ids, lengths)
    layers[-1][0, 100].sum().backward()
    moved = core.table.weight.grad.abs().sum(1) > 0  # type: ignore[union-attr]
    assert moved.nonzero()[:, 0].tolist() == list(range(72, 101))
    assert torch.allclose(layers[-1], core.eval().read(ids, lengths)[-1], atol=1e-6), (
        "the state is passed on from chunk to chunk"
    )


def test_gradient_reaches_only_the_end_of_a_long_text() -> None:
    core = AwdLstm(Sizes(400, 6, 10, 3), Dropouts(0, 0, 0, 0, 0)).train()
    ids = torch.arange(300)[None].expand(2, -1)
    core.read(ids, torch.tensor([300, 100]), max_len=72)[-1][0].sum().backward()
    moved = core.table.weight.grad.abs().sum(1) > 0  # type: ignore[union-attr]
    assert not moved[:288].any(), "the last chunk that starts at most 72 tokens before the end"
    assert moved[288:300].all()
    core.zero_grad()
    core.read(ids, torch.tensor([300, 100]), max_len=72)[-1][1, :100].sum().backward()
    moved = core.table.weight.grad.abs().sum(1) > 0  # type: ignore[union-attr]
    assert moved[72:100].all()
    assert not moved[:72].any()


@torch.no_grad()
def test_backward_model_reads_the_row_in_reverse(tmp_path: Path) -> None:
    """A backward model reads xxbos, the first token of the row, last; its states return in text order."""
    ahead = load(name="a", path=make_awd_lstm(tmp_path / "m"), cache_dir=tmp_path).eval()
    back = load(name="b", path=tmp_path / "m", cache_dir=tmp_path, backwards=True).eval()
    tokens = tokens_of(back, "the quick brown fox runs", "a fox")
    states = back(tokens, all_layers=True)
    for i, n in enumerate(tokens.mask.sum(1).tolist()):
        turned = tokens.inputs["input_ids"][i, :n].flip(0)
        core = ahead.core.read(turned[None], torch.tensor([n]))
        assert torch.allclose(states.last_hidden_state[i, :n], core[-1][0].flip(0), atol=1e-6)
        assert turned[-1] == vocabulary().index("xxbos")
        last = pool(states.last_hidden_state, tokens, back.pooling)[i, : back.hidden_size]
        assert torch.allclose(last, core[-1][0, -1], atol=1e-6)
    assert torch.equal(
        states.hidden_states[0], ahead.core.table(tokens.inputs["input_ids"]) * tokens.mask[..., None]
    )  # type: ignore[index]


@torch.no_grad()
def test_bidirectional_states_are_concatenated(tmp_path: Path) -> None:
    both = harness.load_encoder("ulmfit_bi", path=make_both(tmp_path / "two"), cache_dir=tmp_path)
    assert isinstance(both, BidirectionalAwdLstmEncoder)
    singles = [
        harness.load_encoder("ulmfit", path=tmp_path / "two" / d, cache_dir=tmp_path)
        for d in ("forward", "backward")
    ]
    text = "Ana runs to the river, isn't it?"
    parts = [s(tokens_of(s, text), all_layers=True).hidden_states for s in singles]
    tokens = tokens_of(both, text, "a")
    joined = both(tokens, all_layers=True)
    assert torch.allclose(joined.hidden_states[:, :1], torch.cat(parts, -1), atol=1e-6)  # type: ignore[index, arg-type]
    ends = pool(joined.last_hidden_state, tokens, both.pooling)[0, : both.hidden_size]
    n = int(tokens.mask[0].sum())
    assert torch.equal(
        ends, torch.cat([joined.last_hidden_state[0, n - 1, :6], joined.last_hidden_state[0, 0, 6:]])
    )
    table = both.embedding_encoder()
    assert table(tokens_of(table, text)).last_hidden_state.shape[-1] == 12


def test_two_vocabularies_share_one_tokenization(tmp_path: Path) -> None:
    make_both(tmp_path)
    words = json.loads((tmp_path / "backward" / "vocabulary.json").read_text())
    words[-6:] = words[-6:][::-1]
    (tmp_path / "backward" / "vocabulary.json").write_text(json.dumps(words))
    both = harness.load_encoder("ulmfit_bi", path=tmp_path, cache_dir=tmp_path)
    inputs = tokens_of(both, "( 3 왔다 )").inputs
    one = [vocabulary()[i] for i in inputs["input_ids"][0].tolist()]
    two = [words[i] for i in inputs["input_ids_backward"][0].tolist()]
    assert one == two == ["xxbos", "(", "3", "왔다", ")"]
    assert not torch.equal(inputs["input_ids"], inputs["input_ids_backward"])


@pytest.mark.parametrize("backwards", [False, True])
def test_token_that_represents_a_word(tmp_path: Path, backwards: bool) -> None:
    encoder = load(name="x", path=make_awd_lstm(tmp_path), cache_dir=tmp_path, backwards=backwards)
    text = Text.from_words(["Ana", "well-known", "RIVER", "can't"])
    (row,) = encoder.tokenizer.tokenize([text], WindowOptions())[0]
    # xxbos xxmaj ana well - known xxup river ca n't
    assert row.word_to_token.tolist() == ([2, 3, 7, 8] if backwards else [2, 5, 7, 9])
    assert row.word_ids.tolist() == [-1, 0, 0, 1, 1, 1, 2, 2, 3, 3]
    assert row.offsets.tolist()[:3] == [[0, 0], [0, 3], [0, 3]]
    table = encoder.embedding_encoder().tokenizer.tokenize([text], WindowOptions())[0][0]
    assert len(table) == len(row) - 1


def test_new_words_get_separate_vectors_initialised_with_the_mean(tiny: AwdLstmEncoder) -> None:
    mean = tiny.core.table.weight.detach().mean(0)
    tokens = tokens_of(tiny, "the zebra", "the gnu")
    with torch.no_grad():
        before = tiny.eval()(tokens).last_hidden_state
    assert torch.equal(tokens.inputs["input_ids"][0, -1], tokens.inputs["input_ids"][1, -1])
    tiny.restrict(["Zebra", "gnu", "the", "Gnus,"])
    tokens = tokens_of(tiny, "the zebra", "the gnu", "the cow")
    ids = tokens.inputs["input_ids"][:, -1].tolist()
    assert len(set(ids)) == 3
    assert ids[2] == len(vocabulary())
    assert torch.allclose(
        tiny.core.table(tokens.inputs["input_ids"][:, -1:])[:, 0], mean.expand(3, -1), atol=1e-6
    )
    with torch.no_grad():
        assert torch.allclose(tiny(tokens).last_hidden_state[:2], before, atol=1e-6), (
            "new words must not change the states before training"
        )
    assert tiny.core.table.added is not None
    assert tiny.core.table.added.shape == (4, 6)  # one for all other words, and gnu, gnus, zebra
    assert [n for n, _ in tiny.layer_groups()] == ["embeddings", "lstm_0", "lstm_1", "lstm_2"]
    report = tiny.tokenizer.coverage()
    assert (report["types"], report["types_known"], report["unknown_tokens"]) == (4, 1, 5)


def test_pretrained_vocabulary_maps_new_words_to_xxunk(tmp_path: Path) -> None:
    encoder = load(name="x", path=make_awd_lstm(tmp_path), cache_dir=tmp_path, vocabulary="pretrained")
    encoder.restrict(["zebra"])
    assert tokens_of(encoder, "zebra").inputs["input_ids"].tolist() == [[2, 0]]
    assert encoder.core.table.added is None


def test_fingerprint_depends_on_files_options_and_words(tmp_path: Path) -> None:
    folder = make_awd_lstm(tmp_path)
    one = load(name="x", path=folder, cache_dir=tmp_path)
    prints = {one.fingerprint()}
    prints |= {load(name="x", path=folder, cache_dir=tmp_path, vocabulary="pretrained").fingerprint()}
    prints |= {load(name="x", path=folder, cache_dir=tmp_path, backwards=True).fingerprint()}
    one.restrict(["zebra"])
    assert len(prints | {one.fingerprint(), one.embedding_encoder().fingerprint()}) == 5
    assert load(name="y", path=folder, cache_dir=tmp_path).fingerprint() in prints


def test_random_init_uses_the_published_ranges(tmp_path: Path) -> None:
    folder = make_awd_lstm(tmp_path)
    encoder = load(name="x", path=folder, cache_dir=tmp_path, random_init=True)
    assert encoder.core.table.weight.abs().max() <= 0.1
    assert encoder.core.rnns[0].weight_hh_l0.abs().max() <= 10**-0.5  # type: ignore[union-attr, operator]
    again = load(name="x", path=folder, cache_dir=tmp_path, random_init=True)
    assert encoder.fingerprint() != again.fingerprint()


def test_korean_and_an_empty_text(tiny: AwdLstmEncoder) -> None:
    states = tiny.eval().encode(["서울에서 왔다. 경주로", ""])
    assert [s.shape for s in states] == [(4, 6), (0, 6)]
    report = tiny.tokenizer.coverage()
    assert (report["words"], report["words_known"]) == (4, 3)


def test_word_states_skip_marker_tokens(tiny: AwdLstmEncoder) -> None:
    tokens = tokens_of(tiny, "Ana Bank")
    with torch.no_grad():
        states = tiny.eval()(tokens).last_hidden_state
    assert torch.equal(word_states(states, tokens)[0], states[0, [2, 4]])


def test_pairs_are_encoded_separately(tiny: AwdLstmEncoder) -> None:
    with pytest.raises(HarnessError, match=r"pairs=separate"):
        tiny.tokenizer.tokenize_pairs([], WindowOptions())
    with pytest.raises(HarnessError, match=r"max_length"):
        tokens_of(tiny, "a", max_length=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabulary": "tasks"}, "did you mean task"),
        ({"max_len": 0}, r"encoder\.max_len=0"),
        ({"dropouts": {"inputs": 0.1}}, "did you mean input"),
        ({"dropouts": {"input": "a"}}, r"dropouts\.input=a"),
        ({"dropout_multiplier": 3.0}, r"input times .* is 1\.2"),
        ({"dropout_multiplier": True}, "dropout_multiplier"),
    ],
)
def test_options_are_checked(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        load(name="x", path=make_awd_lstm(tmp_path), cache_dir=tmp_path, **options)


def test_language_model_keeps_its_vocabulary_and_remaps_to_another(tmp_path: Path) -> None:
    folder = make_awd_lstm(tmp_path)
    model, checkpoint = load_language_model(folder)
    words = checkpoint.vocabulary
    small = model.remap(words, ["fox", "zebra", "the"]).eval()
    assert torch.equal(small.core.table.weight[0], model.core.table.weight[words.index("fox")])
    assert torch.allclose(small.core.table.weight[1], model.core.table.weight.mean(0))
    assert torch.allclose(small.bias[1], model.bias.mean())
    ids = torch.tensor([[0, 2]])
    with torch.no_grad():
        old = model.eval()(torch.tensor([[words.index("fox"), words.index("the")]])).logits
        assert torch.allclose(small(ids).logits[..., 0], old[..., words.index("fox")], atol=1e-6)


def test_language_model_passes_its_state_on_without_gradient() -> None:
    model = tiny_lm().eval()
    ids = torch.arange(12)[None]
    first = model(ids[:, :5])
    second = model(ids[:, 5:], first.hidden)
    assert not any(h.requires_grad for pair in second.hidden for h in pair)
    joined = torch.cat([first.logits, second.logits], 1)
    assert torch.allclose(joined, model(ids).logits, atol=1e-6)
    assert "decoder" not in " ".join(model.state_dict()), "the tied table is stored once"


@pytest.mark.parametrize("count", [0, 2, 10])
@pytest.mark.parametrize("side", ["right", "left"])
def test_concat_pooling_ignores_padding(count: int, side: str) -> None:
    """Padding zeros must not enter the maximum or the mean, and the last state is the last real one."""
    real, pads = torch.tensor([[1.0, -1.0], [3.0, -5.0]]), torch.zeros(count, 2)
    mask, none = torch.ones(2, dtype=torch.bool), torch.zeros(count, dtype=torch.bool)
    order = (lambda a, b: torch.cat([a, b])) if side == "right" else (lambda a, b: torch.cat([b, a]))
    tokens = padded([[0] * (2 + count)])
    tokens.mask = order(mask, none)[None]
    states = order(real, pads)[None]
    assert pool(states, tokens, "concat").tolist() == [[3, -5, 3, -1, 2, -3]]
    assert pool(states, tokens, "concat_backward").tolist() == [[1, -1, 3, -1, 2, -3]]
    assert pool(states, tokens, "concat_both").tolist() == [[3, -1, 3, -1, 2, -3]]
    assert pooled_size(2, "concat_both") == 6


@pytest.mark.parametrize("name", ["ulmfit", "ulmfit_bi", "ulmfit_wt103", "ulmfit_wt103_bwd"])
def test_bundled_configurations_are_complete(name: str) -> None:
    from harness.encoders.loading import encoder_config

    config = encoder_config(name)
    assert config["name"] == name
    assert config["about"]["family"] == "ulmfit"
    assert set(config["about"]) >= {"family", "unit", "objective", "size", "source"}
    assert set(config["recipe"]) >= {"scratch", "frozen", "embedding_init", "slow_embedding", "full"}
    assert all(r["source"] for r in config["recipe"].values())
    with pytest.raises(HarnessError, match=r"set encoder\.path=DIR"):
        harness.load_encoder(name)


def test_concat_members_are_pooled_to_words(tmp_path: Path) -> None:
    folder = make_awd_lstm(tmp_path)
    member = {"_target_": "harness.encoders.awd_lstm.load", "name": "x", "path": str(folder)}
    joined = harness.load_encoder("concat", cache_dir=tmp_path, members={"one": member, "two": member})
    joined.restrict(["zebra"])  # type: ignore[operator]
    single = harness.load_encoder("ulmfit", folder, cache_dir=tmp_path)
    text = "Ana runs to zebra 왔다"
    (both,), (alone,) = joined.encode([text]), single.encode([text])
    assert np.allclose(both, np.concatenate([alone, alone], -1), atol=1e-6)


def test_mixed_precision_trains_on_the_cpu() -> None:
    core = AwdLstm(Sizes(30, 6, 10, 3)).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        core.read(torch.randint(0, 30, (2, 100)), torch.tensor([100, 60]))[-1].sum().backward()
    assert all(p.grad is not None for p in core.parameters())
