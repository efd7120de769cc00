"""What is checked when a checkpoint is loaded: padding, positions, segments, unused weights, ids, layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from harness.data.text import Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import TokenBatch
from harness.encoders.transformer import load_bert, load_gpt
from harness.encoders.transformer.checks import check_decoder, check_encoder
from harness.encoders.transformer.encoder import TransformerEncoder
from harness.encoders.transformer.files import checkpoint_files
from harness.errors import HarnessError
from tests.helpers.tiny_transformers import (
    SMALL,
    TEXT,
    make_checkpoint,
    wordpiece,
    wordpiece_vocab,
    write_tokenizer,
)

WEIGHTS = "model.safetensors"
POSITIONS = {"max_position_embeddings": 128}
RESERVED = {"max_position_embeddings": 130, "pad_token_id": 1, "type_vocab_size": 1}
KINDS: dict[str, dict[str, Any]] = {
    "fnet": {k: v for k, v in SMALL.items() if k != "num_attention_heads"} | POSITIONS,
    "convbert": {**SMALL, **POSITIONS, "embedding_size": 16, "head_ratio": 2},
    "yoso": {**SMALL, **POSITIONS},
    "nystromformer": {**SMALL, **POSITIONS, "conv_kernel_size": 5},
    "ibert": {**SMALL, **RESERVED},
    "xlnet": {"d_model": 16, "n_head": 2, "n_layer": 2, "d_inner": 32},
    "xlm": {"emb_dim": 16, "n_layers": 2, "n_heads": 2, **POSITIONS},
    "opt": {
        "hidden_size": 16, "word_embed_proj_dim": 8, "ffn_dim": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "do_layer_norm_before": False, **POSITIONS,
    },
    "gemma3_text": {**SMALL, **POSITIONS, "num_key_value_heads": 1, "head_dim": 8},
}  # fmt: skip
DEPENDS_ON_PADDING = ("fnet", "convbert", "yoso", "nystromformer")


def make(folder: Path, kind: str) -> Path:
    from transformers import AutoConfig, AutoModel

    size = wordpiece().get_vocab_size()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = AutoConfig.for_model(kind, vocab_size=size, initializer_range=0.3, **KINDS[kind])
        AutoModel.from_config(config).save_pretrained(folder)
    write_tokenizer(folder, wordpiece())
    return folder


def load(folder: Path, loader: Any = load_bert) -> TransformerEncoder:
    encoder: TransformerEncoder = loader(name="x", path=str(folder), random_init=False, cache_dir=folder)
    return encoder.eval()


def batch(encoder: TransformerEncoder, *texts: str) -> TokenBatch:
    rows = encoder.tokenizer.tokenize([Text.from_string(t) for t in texts], WindowOptions())
    return TokenBatch.collate([r for windows in rows for r in windows], pad=encoder.tokenizer.pad)


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "bert", "bert")


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("opt", "gemma3_text", "xlnet")])
def test_states_are_those_of_plain_transformers_alone_and_in_a_batch(tmp_path, kind):
    from transformers import AutoModel

    folder = make(tmp_path, kind)
    encoder, plain = load(folder), AutoModel.from_pretrained(folder).eval()
    assert encoder.equal_lengths == (kind in DEPENDS_ON_PADDING)
    assert encoder.max_length == 128
    texts = ("How are you", TEXT)
    together = batch(encoder, *texts)
    with torch.no_grad():
        out = encoder(together, all_layers=True)
        for row, text in enumerate(texts):
            ids = batch(encoder, text).inputs["input_ids"]
            reference = plain(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
            assert (out.last_hidden_state[row, : len(reference)] - reference).abs().max() < 1e-4
    assert out.hidden_states is not None
    assert torch.equal(out.hidden_states[-1][together.mask], out.last_hidden_state[together.mask])


def test_gradients_flow_through_rows_of_different_lengths(tmp_path):
    encoder = load(make(tmp_path, "fnet")).train()
    encoder(batch(encoder, "a", TEXT)).last_hidden_state.pow(2).sum().backward()
    layers = [p for name, ps in encoder.layer_groups() if name != "embeddings" for p in ps]
    assert sum(p.grad is not None for p in layers) >= len(layers) - 2  # the pooler is not used


def test_xlnet_gets_segments(tmp_path):
    encoder = load(make(tmp_path, "xlnet"))
    rows = encoder.tokenizer.tokenize_pairs([(Text.from_string("a"), Text.from_string("b"))], WindowOptions())
    assert set(rows[0][0].inputs["token_type_ids"].tolist()) == {0, 1}


def test_layers_in_parallel_lists_are_one_group_each(tmp_path):
    """XLM's layer i is attentions.i, layer_norm1.i, ffns.i and layer_norm2.i."""
    encoder = load(make(tmp_path, "xlm"))
    names = {id(p): n for n, p in encoder.named_parameters()}
    for number, (_, parameters) in enumerate(encoder.layer_groups()[1:]):
        assert {names[id(p)].split(".")[2] for p in parameters} == {str(number)}


def test_embedding_projection(tmp_path):
    """In OPT-350M the states have another width than the layers: usable, but the layers cannot be mixed."""
    encoder = load(make(tmp_path, "opt"), load_gpt)
    tokens = batch(encoder, TEXT)
    assert encoder(tokens).last_hidden_state.shape[-1] == encoder.hidden_size == 8
    with pytest.raises(HarnessError, match="other widths than its output"):
        encoder(tokens, all_layers=True)


def test_added_tokens_have_the_scale_of_the_embeddings(tmp_path):
    """Gemma multiplies its embeddings by the square root of their width."""
    encoder = load(make(tmp_path, "gemma3_text"), load_gpt)
    module = encoder.model.get_input_embeddings()
    mean = module(torch.arange(len(module.weight))).mean(0)
    assert encoder.added is not None
    assert torch.allclose(encoder.added[0], mean, atol=1e-5)


def rewrite(folder: Path, change: Any) -> None:
    save_file(change(load_file(folder / WEIGHTS)), folder / WEIGHTS, metadata={"format": "pt"})


def test_equal_embedding_rows_are_not_taken_for_causality(bert):
    def equal(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        table = weights["embeddings.word_embeddings.weight"]
        table[: len(table) // 2 + 10] = table[0].clone()
        return weights

    rewrite(bert, equal)
    assert not load(bert).structure.causal


@pytest.mark.parametrize(
    "key",
    [
        "encoder.layer.0.attention.self.distance_embedding.weight",
        "bert.encoder.layer.1.output.adapters.x.adapter_down.0.weight",
    ],
)
def test_unused_weights_inside_the_encoder_are_refused(bert, key):
    rewrite(bert, lambda w: {**w, key: torch.zeros(3, 4)})
    with pytest.raises(HarnessError, match=rf"1 weights inside the encoder are not used.*{key[-20:]}"):
        load(bert)


def test_weights_of_heads_and_constant_buffers_are_not_missed(bert):
    extra = {"cls.predictions.bias": torch.zeros(3), "embeddings.position_ids": torch.zeros(1, 3)}
    rewrite(bert, lambda w: {**w, **extra})
    load(bert)


@pytest.mark.parametrize(("kind", "loader"), [("bert", load_bert), ("gpt2", load_gpt)])
def test_added_token_beyond_the_embedding_table(tmp_path, kind, loader):
    folder = make_checkpoint(tmp_path, kind)
    data = json.loads((folder / "tokenizer.json").read_text())
    size = len(data["model"]["vocab"])
    token = {"id": size, "content": "topicword", "special": False, "normalized": True}
    data["added_tokens"].append({**token, "single_word": False, "lstrip": False, "rstrip": False})
    (folder / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(
        HarnessError, match=rf"'topicword' has id {size}, but the embedding table has {size} rows"
    ):
        load(folder, loader)


def test_tokenizer_without_post_processor_gets_the_architectures_template(bert):
    data = json.loads((bert / "tokenizer.json").read_text())
    (bert / "tokenizer.json").write_text(json.dumps({**data, "post_processor": None}))
    (bert / "tokenizer_config.json").unlink()
    encoder = load(bert)
    assert encoder.pooling == "cls"
    assert [part.ids for part in encoder.tokenizer.single.parts] == [(2,), (), (3,)]


def test_case_follows_tokenizer_config_as_in_transformers(bert):
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
    (bert / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load(bert).tokenizer
    tokenizer.tokenize([Text.from_string("ANA")], WindowOptions())
    assert tokenizer.counts["unknown_tokens"] == 1


@pytest.mark.parametrize("ending", ["", "\n", "\n\n"])
def test_cased_vocabulary_is_not_lower_cased_whatever_its_end(bert, ending):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (bert / name).unlink()
    pieces = ["ANA" if piece == "ana" else piece for piece in wordpiece_vocab()]
    (bert / "vocab.txt").write_text("\n".join(pieces) + ending, encoding="utf-8")
    tokenizer = load(bert).tokenizer
    (row,) = tokenizer.tokenize([Text.from_string("ANA")], WindowOptions())[0]
    assert row.inputs["input_ids"].tolist() == [2, pieces.index("ANA"), 3]


def edit(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"auto_map": {"AutoModel": "code.Model"}}, "auto_map: .* never run"),
        ({"transformers_weights": "other.safetensors"}, "transformers_weights"),
        ({"vocab_size": 1 << 40}, "vocab_size=1099511627776"),
        ({"num_hidden_layers": 1 << 31}, "num_hidden_layers=2147483648"),
        ({"is_encoder_decoder": True}, "encoder-decoder"),
        ({"is_decoder": True}, "encoder=gpt, not bert"),
    ],
)
def test_configurations_refused_before_torch_is_imported(bert, changes, message):
    edit(bert, **changes)
    with pytest.raises(HarnessError, match=message):
        check_encoder({"path": str(bert)}, bert)


def test_more_parameters_than_the_file_has_bytes(bert):
    edit(bert, max_position_embeddings=1 << 34)
    with pytest.raises(HarnessError, match=r"parameters, but its weights have"):
        load(bert)


def test_facts_without_loading(bert, tmp_path):
    facts = check_encoder({"path": str(bert)}, bert)
    assert facts.num_layers == 2
    with pytest.raises(HarnessError, match=r"layers=\[0,99\]: encoder x has layers 0 to 2"):
        facts.check("x", layers=[0, 99], precision="32-true")
    with pytest.raises(HarnessError, match="use encoder=bert, not gpt"):
        check_decoder({"path": str(bert)}, bert)
    edit(bert, model_type="deberta")
    with pytest.raises(HarnessError, match="bfloat16"):
        check_encoder({"path": str(bert)}, bert).check("x", layers="top", precision="bf16-mixed")


def test_deeply_nested_configuration_is_one_error(bert):
    (bert / "config.json").write_text("[" * 100_000)
    with pytest.raises(HarnessError, match="nested too deeply"):
        check_encoder({"path": str(bert)}, bert)


def test_sentencepiece_missing_names_the_package(bert, monkeypatch):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (bert / name).unlink()
    (bert / "spm.model").write_bytes(b"x")
    monkeypatch.setattr("harness.encoders.transformer.checks._is_missing", lambda _: True)
    with pytest.raises(HarnessError, match="pip install sentencepiece"):
        check_encoder({"path": str(bert)}, bert)


def test_index_that_names_files_elsewhere_and_adapters_are_refused(bert):
    (bert / WEIGHTS).rename(bert / "model-00001-of-00001.safetensors")
    index = bert / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-00001-of-00001.safetensors"}}))
    assert "model-00001-of-00001.safetensors" in checkpoint_files(bert)
    index.write_text(json.dumps({"weight_map": {"a": "../outside.safetensors"}}))
    with pytest.raises(HarnessError, match=r"names the file \.\./outside"):
        checkpoint_files(bert)
    (bert / "adapter_config.json").write_text("{}")
    with pytest.raises(HarnessError, match="an adapter"):
        checkpoint_files(bert)


def test_every_tokenizer_file_is_fingerprinted(bert):
    (bert / "vocab.json").write_text("{}")
    (bert / "vocab.txt").write_text("a\n")
    assert {"tokenizer.json", "vocab.json", "vocab.txt"} <= set(checkpoint_files(bert))


def test_states_under_opts_decoder_are_found_for_adaptation(tmp_path):
    """OPT's language model calls only a part of its base model."""
    from transformers import AutoModelForCausalLM

    from harness.adaptation.transformer import labelled_logits

    model = AutoModelForCausalLM.from_pretrained(make_checkpoint(tmp_path, "opt", head=True)).eval()
    ids, labels = torch.tensor([[5, 6, 7], [8, 9, 4]]), torch.tensor([[-100, 7, 2], [9, -100, -100]])
    tensors = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with torch.no_grad():
        logits, gold = labelled_logits(model, tensors, labels)
        everywhere = model(**tensors).logits
    assert gold.tolist() == [7, 2, 9]
    assert torch.allclose(logits, everywhere[labels != -100], atol=1e-5)


def test_sweep_reports_an_encoder_that_cannot_be_used_before_any_cell(bert, tmp_path):
    from harness.sweeps.checks import encoder_problems
    from tests.helpers.cells import make_cell

    given = ["encoder=bert", f"encoder.path={bert}", "strategy=frozen", "task=mini_topic"]
    cells = [make_cell(tmp_path, *given, "encoder.layers=[0,99]"), make_cell(tmp_path, *given)]
    assert [line.split(":")[0] for line in encoder_problems(cells)] == ["encoder.layers=[0,99]"]
    wrong = make_cell(tmp_path, "encoder=gpt", *given[1:])
    assert "use encoder=bert, not gpt" in "".join(encoder_problems([wrong, wrong]))
