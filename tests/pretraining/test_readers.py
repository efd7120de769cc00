"""What ``harness pretrain`` writes, read by the libraries that everybody reads these formats with."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import harness
from harness.data.text import split_words
from harness.pretraining.job import run_job
from harness.pretraining.text.corpus import Corpus, read_corpus
from tests.helpers.tiny_corpus import config, write

LINE = "Ana sees Kiev ."


def quiet(_: str) -> None:
    pass


def trained(family: str, folder: Path, *more: str) -> tuple[Path, dict[str, Any], Corpus]:
    """Output, record, and the corpus as it was divided."""
    given = config(family, *more, corpus=write(folder), output=folder / "out")
    record = run_job(given, report=quiet)
    return folder / "out", record, read_corpus(folder / "corpus.txt", held_out=given["held_out"])


def ids_of(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False).input_ids)


def same_states(family: str, folder: Path, body: Any, tokenizer: Any) -> None:
    """The harness's encoder gives each word the mean of the states of the pieces that end in it."""
    given = tokenizer(LINE, return_tensors="pt", return_offsets_mapping=True)
    ends = given.pop("offset_mapping")[0, :, 1]
    with torch.no_grad():
        states = body.eval()(**given).last_hidden_state[0]
    spans = split_words(LINE)
    wanted = torch.stack([states[(ends > a) & (ends <= b)].mean(0) for a, b in spans]).numpy()
    (ours,) = harness.load_encoder(family, folder).encode([LINE])
    np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooler", [False, True])
def test_transformers_reads_a_bert_and_its_loss_is_the_records(pooler: bool, tmp_path: Path) -> None:
    from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

    more = [f"encoder.next_sentence={str(pooler).lower()}", "encoder.packing=line"]
    folder, record, corpus = trained("bert", tmp_path, *more)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model, told = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not told["missing_keys"]
    model.eval()
    nll = masked = 0.0
    for line in (line for document in corpus.held_out for line in document):
        ids = torch.tensor([tokenizer(line).input_ids])
        assert ids[0, 0] == tokenizer.cls_token_id
        assert ids[0, -1] == tokenizer.sep_token_id
        for offset in range(7):
            places = torch.tensor(list(range(1 + offset, ids.shape[1] - 1, 7)))
            if not len(places):
                continue
            shown, labels = ids.clone(), torch.full_like(ids, -100)
            shown[0, places], labels[0, places] = tokenizer.mask_token_id, ids[0, places]
            with torch.no_grad():
                nll += float(model(input_ids=shown, labels=labels).loss) * len(places)
            masked += len(places)
    assert record["held_out"]["tokens"] == masked
    assert record["held_out"]["masked_nll"] == pytest.approx(nll / masked, rel=1e-4)
    body, told = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert bool([k for k in told["missing_keys"] if "pooler" in k]) != pooler
    same_states("bert", folder, body, tokenizer)


@pytest.mark.parametrize("block", ["gpt2", "bert"])
def test_transformers_reads_a_gpt_and_its_loss_is_the_records(block: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, record, corpus = trained("gpt", tmp_path, f"encoder.block={block}", "encoder.positions=64")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model, told = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not told["missing_keys"]
    model.eval()
    nll = tokens = 0.0
    for document in corpus.held_out:
        ids = [tokenizer.convert_tokens_to_ids("<|endoftext|>"), *ids_of(tokenizer, " ".join(document))]
        assert len(ids) <= 65
        row = torch.tensor([ids])
        with torch.no_grad():
            scores = model(row[:, :-1]).logits[0].log_softmax(-1)
        nll -= float(scores.gather(1, row[0, 1:, None]).sum())
        tokens += len(ids) - 1
        if len(ids) <= 64:
            with torch.no_grad():
                own = float(model(row, labels=row).loss)
            assert own == pytest.approx(-float(scores.gather(1, row[0, 1:, None]).mean()), rel=1e-4)
    assert record["held_out"]["tokens"] == tokens
    assert record["held_out"]["nll"] == pytest.approx(nll, rel=1e-4)
    same_states("gpt", folder, model.base_model, tokenizer)


def fastai_scores(weights: dict[str, torch.Tensor], ids: list[int]) -> torch.Tensor:
    """(S, V): fastai's AWD-LSTM in evaluation by its names in a ``.pth``, the LSTMs being torch's own."""
    x = weights["0.encoder.weight"][torch.tensor([ids])]
    for layer in range(sum(k.endswith("weight_hh_l0_raw") for k in weights)):
        told = {
            k: weights[f"0.rnns.{layer}.module.{k}"] for k in ("weight_ih_l0", "bias_ih_l0", "bias_hh_l0")
        }
        told["weight_hh_l0"] = weights[f"0.rnns.{layer}.weight_hh_l0_raw"]
        wide, narrow = told["weight_ih_l0"].shape[1], told["weight_hh_l0"].shape[1]
        lstm = nn.LSTM(wide, narrow, batch_first=True)
        lstm.load_state_dict(told)
        x, _ = lstm(x)
    return x[0] @ weights["1.decoder.weight"].T + weights["1.decoder.bias"]


@pytest.mark.parametrize("backwards", [False, True])
def test_an_awd_lstm_under_fastais_names_gives_the_records_loss(backwards: bool, tmp_path: Path) -> None:
    from harness.encoders.awd_lstm.checkpoint import read_checkpoint, write_fastai
    from harness.encoders.awd_lstm.fastai_rules import fastai_tokens
    from harness.encoders.awd_lstm.files import awd_lstm_files

    folder, record, corpus = trained("ulmfit", tmp_path, f"encoder.backwards={str(backwards).lower()}")
    found = read_checkpoint(awd_lstm_files({"path": str(folder)}, tmp_path / "cache"))
    write_fastai(tmp_path / "fastai", found.weights, found.vocabulary)
    weights = torch.load(tmp_path / "fastai" / "model.pth", weights_only=True)
    words = pickle.loads((tmp_path / "fastai" / "model_vocab.pkl").read_bytes())
    assert torch.equal(weights["0.encoder.weight"], weights["0.encoder_dp.emb.weight"])
    rows = {w: i for i, w in enumerate(words)}
    nll = tokens = 0.0
    for document in corpus.held_out:
        ids = [rows.get(t.text, rows["xxunk"]) for t in fastai_tokens(" ".join(document))]
        ids = [rows["xxbos"], *(ids[::-1] if backwards else ids)]
        with torch.no_grad():
            scores = fastai_scores(weights, ids[:-1]).log_softmax(-1)
        nll -= float(scores.gather(1, torch.tensor(ids[1:])[:, None]).sum())
        tokens += len(ids) - 1
    assert record["held_out"]["tokens"] == tokens
    assert record["held_out"]["nll"] == pytest.approx(nll, rel=1e-4)


# gensim leaves a file without a header open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(
    ("family", "form", "file"),
    [("word2vec", "text", "vectors.txt"), ("word2vec", "text.gz", "vectors.txt.gz"),
     ("word2vec", "binary", "vectors.bin"), ("glove", "text", "vectors.txt"),
     ("glove", "text.gz", "vectors.txt.gz")],
)  # fmt: skip
def test_gensim_reads_word_vectors(family: str, form: str, file: str, tmp_path: Path) -> None:
    from gensim.models import KeyedVectors

    folder, record, _ = trained(family, tmp_path, f"encoder.format={form}")
    read = KeyedVectors.load_word2vec_format(
        str(folder / file), binary=form == "binary", no_header=family == "glove"
    )
    assert (len(read), read.vector_size) == (record["vocabulary"], 6)
    (ours,) = harness.load_encoder("static", folder).encode([LINE.split()])
    np.testing.assert_allclose(ours, np.stack([read[w] for w in LINE.split()]), rtol=1e-5, atol=1e-6)
    assert ("<unk>" in read) == (family == "glove")


def test_gensim_reads_a_fasttext_model_and_composes_words_it_never_saw(tmp_path: Path) -> None:
    from gensim.models.fasttext import load_facebook_model, load_facebook_vectors

    folder, record, _ = trained("fasttext", tmp_path)
    read = load_facebook_vectors(str(folder / "model.bin"))
    words = ["Ana", "Anastasia", "likesome"]
    assert [w in read.key_to_index for w in words] == [True, False, False]
    (ours,) = harness.load_encoder("fasttext", folder).encode([words])
    np.testing.assert_allclose(ours, np.stack([read[w] for w in words]), rtol=1e-4, atol=1e-6)
    whole = load_facebook_model(str(folder / "model.bin"))
    assert len(whole.wv) == record["vocabulary"]
    whole.build_vocab([LINE.split(), ["Zoe"]], update=True)
    whole.train([LINE.split(), ["Zoe"]], total_examples=2, epochs=1)


def test_elmo_in_plain_numpy_from_its_two_files(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    from harness.encoders.elmo.files import read_options
    from harness.encoders.elmo.weights import read_weights
    from tests.helpers.tiny_elmo import PlainElmo

    folder, record, corpus = trained("elmo", tmp_path)
    raw = json.loads((folder / "options.json").read_text())
    assert raw["lstm"]["projection_dim"] == 5
    options = read_options(folder / "options.json")
    plain = PlainElmo(options, read_weights(folder / "weights.hdf5", options))
    (ours,) = harness.load_encoder("elmo", folder).encode([LINE])
    layers = plain.sentence(LINE.split(), 0)
    np.testing.assert_allclose(ours, layers[-1], rtol=1e-4, atol=1e-5)
    plain.states.clear()
    softmax = load_file(folder / "softmax.safetensors")
    words = (folder / "vocabulary.txt").read_text().splitlines()
    rank = {w: i for i, w in enumerate(words)}
    nll = 0.0
    for document in corpus.held_out:
        line = [w for text in document for w in text.split()]
        nll += both_directions(plain, line, [rank.get(w, 0) for w in line], softmax)
    assert record["held_out"]["nll"] == pytest.approx(nll / 2, rel=1e-4)


def both_directions(
    plain: Any, words: list[str], classes: list[int], softmax: dict[str, np.ndarray]
) -> float:
    """Nats of the words, forwards and backwards, without the marks."""
    tokens = np.stack([plain.token(w) for w in ["<S>", *words, "</S>"]])
    nll = 0.0
    for direction, order in ((0, 1), (1, -1)):
        states = tokens[::order]
        for layer in range(plain.options.num_layers):
            states = plain.run(states, direction, layer, 0)
            plain.states.clear()
        scores = states @ softmax["softmax.weight"].T.astype(float) + softmax["softmax.bias"]
        scores -= scores.max(1, keepdims=True)
        scores -= np.log(np.exp(scores).sum(1, keepdims=True))
        nll -= sum(scores[k, c] for k, c in enumerate(classes[::order]))
    return float(nll)
