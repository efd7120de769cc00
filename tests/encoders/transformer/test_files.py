"""Checkpoints on disk and on the hub: supported files, rejected files, error messages."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from harness.data.text import Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import TokenBatch
from harness.encoders.transformer import load_bert, load_gpt
from harness.encoders.transformer.encoder import TransformerEncoder
from harness.encoders.transformer.files import checkpoint_files
from harness.encoders.transformer.hub import encoder_files, local_folder
from harness.errors import HarnessError
from tests.helpers.paths import ROOT
from tests.helpers.tiny_transformers import TEXT, make_checkpoint, tiny_config, wordpiece, wordpiece_vocab

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("made")
    for kind in ("bert", "gpt2"):
        make_checkpoint(root / kind, kind)
        make_checkpoint(root / f"{kind}_head", kind, head=True)
    return root


@pytest.fixture
def folder(made, tmp_path) -> Path:
    """A copy of the tiny BERT to damage."""
    return Path(shutil.copytree(made / "bert", tmp_path / "bert"))


def load(path: Path, loader=load_bert, **options) -> TransformerEncoder:
    return loader(name="x", path=str(path), cache_dir=path, **{"random_init": False, **options}).eval()


def states(encoder: TransformerEncoder) -> torch.Tensor:
    rows = encoder.tokenizer.tokenize([Text.from_string(TEXT)], WindowOptions(stride=8))
    with torch.no_grad():
        return encoder(TokenBatch.collate(rows[0], pad=encoder.tokenizer.pad)).last_hidden_state


def rewrite(folder: Path, change) -> None:
    """Replace the weights by ``change(weights)``."""
    save_file(change(load_file(folder / WEIGHTS)), folder / WEIGHTS, metadata={"format": "pt"})


def test_pooler_only_when_it_was_trained(made):
    """A masked-LM checkpoint has no pooler: the pooler is dropped instead of initialised randomly."""
    assert load(made / "bert").has_pooler
    masked = load(made / "bert_head")
    assert not masked.has_pooler
    assert not any("pooler" in n for n, _ in masked.named_parameters())


def test_incomplete_pooler_is_dropped(folder):
    rewrite(folder, lambda w: {k: v for k, v in w.items() if k != "pooler.dense.bias"})
    assert not load(folder).has_pooler


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_head_weights_are_ignored_without_warnings(made, capfd, caplog, kind):
    with caplog.at_level(logging.WARNING):
        load(made / f"{kind}_head", load_bert if kind == "bert" else load_gpt)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


def test_weights_of_another_model_are_rejected_with_counts(folder):
    rewrite(folder, lambda w: {"foo.bar": torch.zeros(2)})
    with pytest.raises(HarnessError, match=r"0 of 3\d weights of a bert matched.*1 unexpected"):
        load(folder)


def test_missing_layer_is_rejected(folder):
    rewrite(folder, lambda w: {k: v for k, v in w.items() if not k.startswith("encoder.layer.1.")})
    with pytest.raises(HarnessError, match=r"weights of a bert matched, 16 missing.*encoder\.layer\.1"):
        load(folder)


def test_changed_shape_is_rejected(folder):
    rewrite(folder, lambda w: {**w, "encoder.layer.0.output.dense.weight": torch.zeros(16, 8)})
    with pytest.raises(HarnessError, match=r"0 missing, 1 of another shape"):
        load(folder)


def test_more_layers_than_in_the_configuration_are_rejected(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    with pytest.raises(HarnessError, match=r"weights have 2 layers, config\.json says 1"):
        load(folder)


def test_published_names_of_old_checkpoints(made, folder):
    """The first BERT checkpoints name a norm's parameters gamma and beta, with a prefix."""

    def old(weights):
        names = {k: k.replace("LayerNorm.weight", "LayerNorm.gamma") for k in weights}
        names = {k: "bert." + v.replace("LayerNorm.bias", "LayerNorm.beta") for k, v in names.items()}
        return {names[k]: v for k, v in weights.items()}

    rewrite(folder, old)
    assert torch.equal(states(load(folder)), states(load(made / "bert")))


def test_half_precision_files_are_loaded_as_float32(folder):
    rewrite(folder, lambda w: {k: v.half() for k, v in w.items()})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "float16"}))
    assert {p.dtype for p in load(folder).parameters()} == {torch.float32}


def test_old_pytorch_file(made, folder):
    torch.save(load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()
    assert sorted(checkpoint_files(folder))[1] == "pytorch_model.bin"
    assert torch.equal(states(load(folder)), states(load(made / "bert")))


def test_pickle_that_runs_code_is_rejected(folder, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    (folder / WEIGHTS).unlink()
    torch.save({"a": Evil()}, folder / "pytorch_model.bin", pickle_module=pickle)
    with pytest.raises(HarnessError, match="weights cannot be read"):
        load(folder)
    assert not (tmp_path / "ran").exists()


def test_vocabulary_without_tokenizer_json(made, folder):
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(wordpiece_vocab()) + "\n", encoding="utf-8")
    assert torch.equal(states(load(folder)), states(load(made / "bert")))


def test_first_gpts_vocabulary_without_tokenizer_json(tmp_path):
    """The first GPT's vocabulary: byte pairs of lower-cased words, with ``</w>`` at the end of a word."""
    folder = make_checkpoint(tmp_path / "gpt", "openai-gpt")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    pieces = [
        "<unk>",
        *"abcdefghijklmnopqrstuvwxyz.,",
        *(f"{c}</w>" for c in "abcdefghijklmnopqrstuvwxyz.,"),
        "an",
    ]
    (folder / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate([*pieces, "ana</w>"])}))
    (folder / "merges.txt").write_text("#version: 0.2\na n\nan a</w>\n")
    encoder = load(folder, load_gpt)
    (row,) = encoder.tokenizer.tokenize([Text.from_string("Ana ran.")], WindowOptions(stride=8))[0]
    shown = [encoder.tokenizer.backend.id_to_token(i) for i in row.inputs["input_ids"]]
    assert shown == ["ana</w>", "r", "a", "n</w>", ".</w>"]
    assert row.word_ids.tolist() == [0, 1, 1, 1, 2]
    assert row.offsets.tolist() == [[0, 3], [4, 5], [5, 6], [6, 7], [7, 8]]


def test_tokenizers_can_be_pickled(made):
    tokenizer = load(made / "bert").tokenizer
    texts = [Text.from_string(TEXT)]
    unpickled = pickle.loads(pickle.dumps(tokenizer)).tokenize(texts, WindowOptions(stride=8))[0][0]
    original = tokenizer.tokenize(texts, WindowOptions(stride=8))[0][0]
    assert unpickled.inputs["input_ids"].tolist() == original.inputs["input_ids"].tolist()


def test_lower_casing_of_an_old_checkpoint_follows_its_config(folder):
    """An uncased vocabulary is lower-cased unless tokenizer_config.json disables it."""
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(wordpiece_vocab()) + "\n", encoding="utf-8")
    for lower, unknown in ((True, 0), (False, 1)):
        (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower}))
        tokenizer = load(folder).tokenizer
        tokenizer.tokenize([Text.from_string("ANA")], WindowOptions(stride=8))
        assert tokenizer.counts["unknown_tokens"] == unknown


def test_tokenizer_of_another_model_is_rejected(folder):
    tokenizer: Tokenizer = wordpiece()
    names = [f"extra{i}" for i in range(50)]
    data = json.loads(tokenizer.to_str())
    size = tokenizer.get_vocab_size()
    data["model"]["vocab"].update({n: size + i for i, n in enumerate(names)})
    (folder / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(HarnessError, match="tokenizer and weights are not of the same model"):
        load(folder)


@pytest.mark.parametrize(
    ("missing", "message"),
    [("config.json", r"no config\.json"), (WEIGHTS, r"no weights"), ("tokenizer.json", r"no tokenizer")],
)
def test_error_for_an_incomplete_directory_lists_its_files(folder, missing, message):
    (folder / missing).unlink()
    with pytest.raises(HarnessError, match=rf"{message}.*it contains .*\.json"):
        encoder_files({"path": str(folder)}, folder)


def test_errors_name_damaged_files(folder):
    (folder / WEIGHTS).write_bytes(b"damaged")
    with pytest.raises(HarnessError, match="weights cannot be read"):
        load(folder)
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(HarnessError):
        load(folder, random_init=True)
    (folder / "config.json").write_text("{}")
    with pytest.raises(HarnessError, match=r"config\.json"):
        load(folder)


def test_wrong_family_is_rejected(made):
    with pytest.raises(HarnessError, match=r"encoder=gpt, not bert"):
        load(made / "gpt2")
    with pytest.raises(HarnessError, match=r"encoder=bert, not gpt"):
        load(made / "bert", load_gpt)
    with pytest.raises(HarnessError, match="did you mean pairs"):
        load(made / "gpt2", load_gpt, frame="pair")


def test_encoder_decoder_is_rejected(folder):
    (folder / "config.json").write_text(json.dumps({"model_type": "t5", "is_encoder_decoder": True}))
    with pytest.raises(HarnessError, match="encoder-decoder"):
        load(folder)


def test_frame_all_frames_single_texts(made):
    plain, framed = load(made / "gpt2", load_gpt), load(made / "gpt2", load_gpt, frame="all")
    (row,) = framed.tokenizer.tokenize([Text.from_string("a")], WindowOptions(stride=8))[0]
    size = tiny_config("gpt2").vocab_size
    assert row.inputs["input_ids"][[0, -1]].tolist() == [size, size + 2]
    assert plain.fingerprint() != framed.fingerprint()


def test_fingerprint_depends_on_contents_only(made, folder):
    first = load(made / "bert").fingerprint()
    assert load(folder).fingerprint() == first  # the same files elsewhere
    rewrite(folder, lambda w: {**w, "pooler.dense.bias": w["pooler.dense.bias"] + 1})
    assert load(folder).fingerprint() != first
    torch.manual_seed(0)
    assert load(made / "bert", random_init=True).fingerprint() != first


@pytest.mark.parametrize("path", [None, "", "./nowhere", "/no/such/dir", "a/b/c"])
def test_invalid_paths(path, tmp_path):
    with pytest.raises(HarnessError, match=r"encoder\.path"):
        local_folder(path, tmp_path)


def test_file_instead_of_directory_is_rejected(folder):
    with pytest.raises(HarnessError, match="is a file"):
        local_folder(folder / "config.json", folder)


LOOKUP = """
import sys, pathlib
from harness.encoders.transformer.hub import encoder_files
from harness.errors import HarnessError
try:
    print(sorted(encoder_files({"path": "some-owner/some-model"}, pathlib.Path("."))))
except HarnessError as e:
    print(e)
assert not {"torch", "transformers"} & set(sys.modules)
"""


def lookup(tmp_path: Path, **environment: str) -> str:
    env = {k: v for k, v in os.environ.items() if "proxy" not in k.lower() and not k.startswith("HF_")}
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", LOOKUP],
        env={**env, "HF_HOME": str(tmp_path / "hf"), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert time.perf_counter() - began < 20
    return done.stdout


def test_offline_hub_gives_one_error(tmp_path):
    output = lookup(tmp_path, HF_HUB_OFFLINE="1")
    assert "HF_HUB_OFFLINE" in output
    assert "set encoder.path=DIR" in output


def test_unreachable_hub_gives_one_error(tmp_path):
    output = lookup(tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
    assert "cannot be reached" in output
    assert "set encoder.path=DIR" in output
    assert output.count("\n") == 1


def test_cached_hub_model_needs_no_network(tmp_path, made):
    repository = tmp_path / "hf" / "hub" / "models--some-owner--some-model"
    shutil.copytree(made / "bert", repository / "snapshots" / ("0" * 40))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    output = lookup(tmp_path, HF_HUB_OFFLINE="1")
    assert WEIGHTS in output
    assert "config.json" in output


BERTS = ("bert_tiny", "bert_base_uncased", "bert_base_cased", "bert_base_multilingual", "distilbert")
OTHERS = ("roberta_base", "albert_base", "electra_small", "klue_bert")
GPTS = ("openai_gpt", "gpt2", "distilgpt2", "kogpt2")
NAMED = ["bert", "gpt", *BERTS, *OTHERS, *GPTS]
RECIPE = {"lr", "epochs", "batch_size", "schedule", "warmup", "weight_decay", "dropout", "patience", "body"}


def compose(search: Path, option: str) -> dict:
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    GlobalHydra.instance().clear()
    conf = ROOT / "conf"
    with initialize_config_dir(str(conf), version_base="1.3"):
        over = [f"hydra.searchpath=[file://{search}]", f"+encoder={option}"]
        made = OmegaConf.to_container(compose(overrides=over))
    assert isinstance(made, dict)
    return made["encoder"]


@pytest.mark.parametrize("option", NAMED)
def test_configurations(option, tmp_path):
    config = compose(tmp_path, option)
    assert config["name"] == option
    assert (config["path"] is None) == (option in ("bert", "gpt"))
    assert set(config["about"]) >= {"family", "unit", "objective", "size", "source"}
    assert set(config["recipe"]) == {"scratch", "frozen", "embedding_init", "slow_embedding", "full"}
    for recipe in config["recipe"].values():
        assert recipe["source"]
        assert set(recipe) - {"source"} <= RECIPE


def test_custom_encoder_from_a_three_line_yaml(tmp_path, made):
    (tmp_path / "encoder").mkdir()
    text = f"defaults: [bert]\nname: mine\npath: {made / 'bert'}\n"
    (tmp_path / "encoder" / "mine.yaml").write_text(text)
    from harness.encoders.config import EncoderConfig

    config = compose(tmp_path, "mine")
    encoder = EncoderConfig.parse(config).build(cache_dir=tmp_path)
    assert (encoder.name, encoder.hidden_size) == ("mine", 16)
    assert config["recipe"]["full"]["epochs"] == 3
