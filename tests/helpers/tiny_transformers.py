"""Tiny random checkpoints with tokenizers, in the layout of the hub."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'\"-_()[]<>/|"
WORDS = ("the", "how", "are", "you", "fine", "wash", "##ington", "d", "c", "ana", "runs", "한국", "un", "##s")
TEXT = "How are you? The naïve Ana runs 1,000.5 miles to Washington D.C. -- fine!"


def wordpiece_vocab() -> list[str]:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    pieces += [p + c for c in ALPHABET for p in ("", "##")]
    return list(dict.fromkeys(pieces))


def wordpiece(*, lower: bool = True) -> Tokenizer:
    """Build a BERT tokenizer of letters and a few words."""
    vocab = {piece: i for i, piece in enumerate(wordpiece_vocab())}
    out = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    out.normalizer = normalizers.BertNormalizer(lowercase=lower)
    out.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    out.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    out.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])],
    )
    return out


def byte_level(*, roberta: bool = False) -> Tokenizer:
    """Build a byte-level BPE of all bytes and a few merges, like RoBERTa's (special tokens) or GPT-2's."""
    specials = ["<s>", "<pad>", "</s>", "<unk>"] if roberta else ["<|endoftext|>"]
    pieces = [*specials, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    merges = [("h", "e"), ("t", "he"), ("Ġ", "the"), ("Ġ", "a"), ("u", "n"), ("r", "un"), ("Ġ", "Ġ")]
    pieces += [a + b for a, b in merges]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    out = Tokenizer(models.BPE(vocab, merges))
    out.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    out.decoder = decoders.ByteLevel()
    out.add_special_tokens(specials)
    if roberta:
        out.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    else:
        out.post_processor = processors.ByteLevel(trim_offsets=True)
    return out


def unigram() -> Tokenizer:
    """Build a SentencePiece tokenizer like ALBERT's, which attaches spaces to the next piece."""
    pieces = [("<pad>", 0.0), ("<unk>", 0.0), ("[CLS]", 0.0), ("[SEP]", 0.0), ("▁", -3.0), ("▁the", -2.0)]
    pieces += [("▁a", -2.5), ("run", -4.0), *((c, -5.0) for c in ALPHABET)]
    out = Tokenizer(models.Unigram(pieces, unk_id=1))
    out.normalizer = normalizers.Sequence(
        [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    )
    out.pre_tokenizer = pre_tokenizers.Metaspace()
    out.add_special_tokens(["<pad>", "<unk>", "[CLS]", "[SEP]"])
    out.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return out


SMALL = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 32}
POSITIONS = 128
SPECIAL: dict[str, dict[str, Any]] = {
    "bert": {**SMALL, "max_position_embeddings": POSITIONS},
    "distilbert": {"dim": 16, "n_heads": 2, "n_layers": 2, "hidden_dim": 32,
                   "max_position_embeddings": POSITIONS},
    "roberta": {
        **SMALL, "max_position_embeddings": POSITIONS + 2, "type_vocab_size": 1, "pad_token_id": 1,
        "bos_token_id": 0, "eos_token_id": 2,
    },
    "albert": {**SMALL, "embedding_size": 8, "max_position_embeddings": POSITIONS},
    "electra": {**SMALL, "embedding_size": 8, "max_position_embeddings": POSITIONS},
    "deberta-v2": {
        **SMALL, "max_position_embeddings": POSITIONS, "relative_attention": True,
        "norm_rel_ebd": "layer_norm",
        "pos_att_type": ["p2c", "c2p"], "conv_kernel_size": 3,
    },
    "gpt2": {"n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": POSITIONS},
    "openai-gpt": {"n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": POSITIONS},
    "gpt_neo": {
        "hidden_size": 16, "num_heads": 2, "num_layers": 2, "attention_types": [[["global", "local"], 1]],
        "max_position_embeddings": POSITIONS, "window_size": 16,
    },
    "opt": {
        "hidden_size": 16, "word_embed_proj_dim": 16, "ffn_dim": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "max_position_embeddings": POSITIONS,
    },
    "llama": {**SMALL, "num_key_value_heads": 2, "max_position_embeddings": POSITIONS},
}  # fmt: skip
BIDIRECTIONAL = ("bert", "distilbert", "roberta", "albert", "electra", "deberta-v2")
CAUSAL = ("gpt2", "openai-gpt", "gpt_neo", "opt", "llama")


def tokenizer_for(kind: str) -> Tokenizer:
    if kind in ("albert", "deberta-v2"):
        return unigram()
    if kind in ("roberta", *CAUSAL):
        return byte_level(roberta=kind == "roberta")
    return wordpiece()


@cache
def tiny_config(kind: str) -> Any:
    from transformers import AutoConfig

    size = tokenizer_for(kind).get_vocab_size()
    fixed = {"vocab_size": size, "initializer_range": 0.3}
    if kind in CAUSAL:
        fixed |= {"bos_token_id": 0, "eos_token_id": 0}
    return AutoConfig.for_model(kind, **{**fixed, **SPECIAL[kind]})


def make_checkpoint(folder: Path, kind: str = "bert", *, head: bool = False, seed: int = 0) -> Path:
    """Write a tiny random checkpoint; ``head`` = a masked or causal language model, which has no pooler."""
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

    made: Any = AutoModel
    if head:
        made = AutoModelForCausalLM if kind in CAUSAL else AutoModelForMaskedLM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = made.from_config(tiny_config(kind))
    model.save_pretrained(folder)
    write_tokenizer(folder, tokenizer_for(kind))
    return folder


def write_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    vocabulary = tokenizer.get_vocab()
    names = {"pad_token": ("[PAD]", "<pad>"), "unk_token": ("[UNK]", "<unk>", "<|endoftext|>")}
    # the class that takes tokenizer.json as it is; an architecture's own class would apply its own rules
    config: dict[str, Any] = {"model_max_length": 10**30, "tokenizer_class": "PreTrainedTokenizerFast"}
    for role, options in names.items():
        present = [o for o in options if o in vocabulary]
        if present:
            config[role] = present[0]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
