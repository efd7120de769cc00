"""Transformer encoders on tiny random checkpoints of many architectures."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from harness.data.text import Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import TokenBatch, pool
from harness.encoders.transformer import load_bert, load_gpt
from harness.encoders.transformer.encoder import TransformerEncoder
from tests.helpers.tiny_transformers import BIDIRECTIONAL, CAUSAL, POSITIONS, TEXT, make_checkpoint

ALL = (*BIDIRECTIONAL, *CAUSAL)
SHORT, OTHER = "How are you", "fine, the Ana runs"


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory) -> dict[str, Path]:
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("checkpoints")
    return {kind: make_checkpoint(root / kind, kind) for kind in ALL}


def load(folder: Path, kind: str, *, random_init: bool = False) -> TransformerEncoder:
    loader = load_gpt if kind in CAUSAL else load_bert
    return loader(name=kind, path=str(folder), random_init=random_init, cache_dir=folder)


@pytest.fixture(scope="session")
def encoders(checkpoints) -> dict[str, TransformerEncoder]:
    return {kind: load(folder, kind).eval() for kind, folder in checkpoints.items()}


def batch(encoder: TransformerEncoder, *texts: str, windowing: WindowOptions | None = None) -> TokenBatch:
    rows = encoder.tokenizer.tokenize(
        [Text.from_string(t) for t in texts], windowing or WindowOptions(stride=8)
    )
    return TokenBatch.collate([r for windows in rows for r in windows], pad=encoder.tokenizer.pad)


def pair_batch(encoder: TransformerEncoder, *pairs: tuple[str, str]) -> TokenBatch:
    texts = [(Text.from_string(a), Text.from_string(b)) for a, b in pairs]
    rows = encoder.tokenizer.tokenize_pairs(texts, WindowOptions(stride=8))
    return TokenBatch.collate([r for windows in rows for r in windows], pad=encoder.tokenizer.pad)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-5) -> bool:
    return a.shape == b.shape and bool((a - b).abs().max() <= tolerance)


@pytest.mark.parametrize("kind", ALL)
def test_partition_is_exact_and_ordered(encoders, kind):
    """Each parameter is in one group: embeddings at the bottom, one group per layer, the rest on top."""
    encoder = encoders[kind]
    groups = encoder.layer_groups()
    seen = [id(p) for _, parameters in groups for p in parameters]
    assert sorted(seen) == sorted(id(p) for p in encoder.parameters())
    names = {id(p): n for n, p in encoder.named_parameters()}
    bottom = {names[id(p)] for p in groups[0][1]}
    assert encoder.structure.distinct == (1 if kind == "albert" else 2)
    assert len(groups) == 1 + encoder.structure.distinct
    layers = encoder.structure.layers
    assert not any(n.startswith(layers) for n in bottom)
    assert names[id(encoder.model.get_input_embeddings().weight)] in bottom
    for name in names.values():
        if "emb" in name and not name.startswith(layers):
            assert name in bottom, name
    for number, (_, parameters) in enumerate(groups[1:]):
        prefix = f"{layers}.{number}."
        others = {names[id(p)] for p in parameters if not names[id(p)].startswith(prefix)}
        assert not any(n.startswith(layers) for n in others)
        if number + 1 < encoder.structure.distinct:
            assert not any("norm" in n or "pooler" in n for n in others)


def test_group_of_selected_parameters(encoders):
    def group_index(kind: str) -> dict[str, int]:
        encoder = encoders[kind]
        names = {id(p): n for n, p in encoder.named_parameters()}
        return {names[id(p)]: i for i, (_, ps) in enumerate(encoder.layer_groups()) for p in ps}

    assert group_index("gpt2")["model.ln_f.weight"] == 2
    assert group_index("gpt2")["added"] == 0
    assert group_index("opt")["model.decoder.final_layer_norm.weight"] == 2  # registered before the layers
    assert group_index("bert")["model.pooler.dense.weight"] == 2
    assert group_index("bert")["model.embeddings.LayerNorm.weight"] == 0
    assert group_index("electra")["model.embeddings_project.weight"] == 0
    assert group_index("albert")["model.encoder.embedding_hidden_mapping_in.weight"] == 0
    assert group_index("albert")["model.pooler.weight"] == 1
    assert group_index("deberta-v2")["model.encoder.rel_embeddings.weight"] == 0
    assert group_index("deberta-v2")["model.encoder.LayerNorm.weight"] == 0


@pytest.mark.parametrize("kind", ALL)
def test_attributes(encoders, kind):
    encoder = encoders[kind]
    assert (encoder.hidden_size, encoder.num_layers, encoder.max_length) == (16, 2, POSITIONS)
    assert encoder.pooling == ("last" if kind in CAUSAL else "cls")
    assert encoder.pairs == "joint"
    assert encoder.has_pooler == (kind in ("bert", "roberta", "albert"))


@pytest.mark.parametrize("kind", ALL)
def test_longest_row_fits_the_position_table(encoders, kind):
    encoder = encoders[kind]
    tokens = batch(encoder, "a " * 200, windowing=WindowOptions(stride=8))
    assert tokens.mask.shape[1] == POSITIONS
    with torch.no_grad():
        assert encoder(tokens).last_hidden_state.isfinite().all()


@pytest.mark.parametrize("kind", ALL)
def test_states_do_not_depend_on_batch_or_padding(encoders, kind):
    """States of a text are the same alone and in a batch with longer texts, whatever the padding contains."""
    encoder = encoders[kind]
    alone, together = batch(encoder, SHORT), batch(encoder, SHORT, TEXT, "", OTHER)
    filled = batch(encoder, SHORT, TEXT, "", OTHER)
    filled.inputs["input_ids"][~filled.mask] = 7
    size = len(alone.mask[0])
    with torch.no_grad():
        one, many, other = (encoder(u, all_layers=True) for u in (alone, together, filled))
    assert close(one.last_hidden_state[0], many.last_hidden_state[0, :size])
    assert close(many.last_hidden_state[together.mask], other.last_hidden_state[together.mask])
    assert close(one.hidden_states[:, 0], many.hidden_states[:, 0, :size])
    assert one.hidden_states.shape == (3, 1, size, 16)
    if encoder.has_pooler:
        assert close(one.pooler_output[0], many.pooler_output[0])


@pytest.mark.parametrize("kind", ALL)
def test_parity_with_plain_transformers(encoders, checkpoints, kind):
    from transformers import AutoModel, PreTrainedTokenizerFast

    encoder = encoders[kind]
    plain = AutoModel.from_pretrained(checkpoints[kind]).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(checkpoints[kind])
    names = set(plain.forward.__code__.co_varnames) | {"input_ids", "attention_mask"}
    for text in (SHORT, TEXT):
        inputs = {k: v for k, v in tokenizer(text, return_tensors="pt").items() if k in names}
        if kind in (*CAUSAL, "roberta"):
            inputs.pop("token_type_ids", None)
        with torch.no_grad():
            ours, reference = encoder(batch(encoder, text)), plain(**inputs)
        assert close(ours.last_hidden_state, reference.last_hidden_state)
        if encoder.has_pooler:
            assert close(ours.pooler_output, reference.pooler_output)


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta", "albert", "electra"])
def test_parity_of_pairs(encoders, checkpoints, kind):
    from transformers import AutoModel, PreTrainedTokenizerFast

    encoder = encoders[kind]
    plain = AutoModel.from_pretrained(checkpoints[kind]).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(checkpoints[kind])
    both = {"return_tensors": "pt", "padding": True, "return_token_type_ids": True}
    inputs = dict(tokenizer([SHORT, OTHER], [OTHER, TEXT], **both))
    if kind in ("distilbert", "roberta"):
        inputs.pop("token_type_ids", None)
    tokens = pair_batch(encoder, (SHORT, OTHER), (OTHER, TEXT))
    assert ("token_type_ids" in tokens.inputs) == (kind in ("bert", "albert", "electra"))
    with torch.no_grad():
        ours, reference = encoder(tokens), plain(**inputs)
    assert close(ours.last_hidden_state[tokens.mask], reference.last_hidden_state[tokens.mask])


@pytest.mark.parametrize("kind", CAUSAL)
def test_pairs_of_a_causal_model_use_three_new_tokens(encoders, kind):
    """Start, delimiter and extract are initialised with the table's mean and used as input vectors."""
    encoder = encoders[kind]
    table = encoder.model.get_input_embeddings().weight
    assert close(encoder.added, table.mean(0).expand(3, -1), 1e-6)
    tokens = pair_batch(encoder, (SHORT, OTHER))
    ids = tokens.inputs["input_ids"]
    with torch.no_grad():
        vectors = torch.cat([table, encoder.added])[ids]
        reference = encoder.model(inputs_embeds=vectors).last_hidden_state
        ours = encoder(tokens).last_hidden_state
    assert close(ours, reference)
    assert tokens.special[0, -1]
    assert close(pool(ours, tokens, encoder.pooling), ours[:, -1])


def test_last_pooling_takes_the_last_real_token():
    """Pooling uses the last True of the mask, whether the padding is on the left or on the right."""
    hidden = torch.tensor([[7.0, 11.0, 13.0, 17.0]] * 4)[..., None]
    mask = torch.tensor([[1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1], [1, 1, 1, 1]]).bool()
    none = torch.zeros(4, 4, dtype=torch.long)
    tokens = TokenBatch({}, mask, none, none[..., None].repeat(1, 1, 2), none, none, none[:, 0], none[:, 0])
    assert pool(hidden, tokens, "last").flatten().tolist() == [13, 17, 17, 17]


@pytest.mark.parametrize("kind", CAUSAL)
def test_positions_are_computed_from_the_mask(encoders, kind):
    """Padding on the left must not change the states of a causal model."""
    encoder = encoders[kind]
    right = batch(encoder, SHORT)
    left = TokenBatch(
        inputs={name: padded_left(tensor) for name, tensor in right.inputs.items()},
        **{name: padded_left(getattr(right, name)) for name in FIELDS},
        example=right.example,
        window=right.window,
    )
    left.mask[:, :2] = False
    with torch.no_grad():
        assert close(encoder(right).last_hidden_state, encoder(left).last_hidden_state[:, 2:])


FIELDS = ("mask", "word_ids", "offsets", "sequence_ids", "word_to_token")


def padded_left(tensor: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(tensor[:, :2]), tensor], 1)


@pytest.mark.parametrize("kind", ["bert", "roberta", "electra", "gpt2", "llama", "deberta-v2"])
def test_checkpointing_keeps_gradients_above_frozen_layers(checkpoints, kind):
    """Gradient checkpointing must not cut gradients off when its inputs do not require them.

    With embeddings and the bottom layer frozen, the top layer's gradients are equal with and without
    checkpointing, and frozen parameters get none.
    """

    def gradients(checkpointing: bool) -> list[Tensor]:
        encoder = load(checkpoints[kind], kind)
        for module in encoder.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        encoder.model.config.attention_probs_dropout_prob = 0.0
        groups = encoder.layer_groups()
        for _, parameters in groups[:2]:
            for parameter in parameters:
                parameter.requires_grad_(False)
        if checkpointing:
            encoder.gradient_checkpointing()
            assert any(getattr(m, "gradient_checkpointing", False) for m in encoder.modules())
        for module in encoder.modules():
            if hasattr(module, "attention_dropout") and isinstance(module.attention_dropout, float):
                module.attention_dropout = 0.0
            if hasattr(module, "dropout_prob"):
                module.dropout_prob = 0.0
        encoder.train()
        encoder(batch(encoder, SHORT, TEXT)).last_hidden_state.pow(2).mean().backward()
        assert all(p.grad is None for _, ps in groups[:2] for p in ps)
        return [p.grad for _, ps in groups[2:] for p in ps if p.grad is not None]

    plain, recomputed = gradients(False), gradients(True)
    assert plain
    assert len(plain) == len(recomputed)
    assert all(close(a, b, 1e-6) for a, b in zip(plain, recomputed, strict=True))


@pytest.mark.parametrize("kind", ["albert", "distilbert", "openai-gpt"])
def test_checkpointing_has_no_effect_on_unsupported_architectures(checkpoints, kind):
    encoder = load(checkpoints[kind], kind)
    encoder.gradient_checkpointing()
    encoder(batch(encoder, SHORT)).last_hidden_state.sum().backward()


@pytest.mark.parametrize("kind", ALL)
def test_embedding_encoder_is_only_the_table(encoders, kind):
    encoder = encoders[kind]
    table = encoder.embedding_encoder()
    weight = encoder.model.get_input_embeddings().weight
    tokens = batch(table, TEXT * 5, "", SHORT)
    assert not tokens.special.any()
    assert (table.num_layers, table.max_length, table.pooling, table.pairs) == (0, None, "mean", "separate")
    out = table(tokens, all_layers=True)
    assert close(out.last_hidden_state[0], weight[tokens.inputs["input_ids"][0]])
    assert not out.last_hidden_state[~tokens.mask].any()
    assert out.hidden_states.shape == (1, *out.last_hidden_state.shape)
    assert table.hidden_size == weight.shape[1]
    assert table.layer_groups() == [("embeddings", [weight])]
    assert [p is weight for p in table.parameters()] == [True]
    assert table.embedding_encoder() is table
    assert len({encoder.fingerprint(), table.fingerprint()}) == 2


@pytest.mark.parametrize("kind", ALL)
def test_random_weights_come_from_the_global_generator(checkpoints, encoders, kind):
    made = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        encoder = load(checkpoints[kind], kind, random_init=True).eval()
        assert not encoder.has_pooler
        made.append(encoder(batch(encoder, TEXT)).last_hidden_state)
    assert close(made[0], made[1], 0)
    assert not close(made[0], made[2], 1e-3)
    assert made[0].shape == encoders[kind](batch(encoders[kind], TEXT)).last_hidden_state.shape


def test_loading_leaves_the_generator_alone_and_the_encoder_in_training_mode(checkpoints):
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    encoder = load(checkpoints["bert"], "bert")
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(m.training for m in encoder.modules())


def test_one_step_trains_every_group(checkpoints):
    """Every parameter gets a gradient (required by DDP); without pairs, the added tokens' is zero."""
    encoder = load(checkpoints["gpt2"], "gpt2")
    encoder(batch(encoder, SHORT)).last_hidden_state.sum().backward()
    assert not encoder.added.grad.any()
    assert all(p.grad is not None for p in encoder.parameters())
