"""Reuse of another output's vocabulary, for models that must differ only in their objective.

The rules and tokens of a ``tokenizer.json`` (word pieces or byte pairs) are kept. BERT's objective needs its
five special tokens as ids 0 to 4, GPT-2's a token that ends a text: ``<|endoftext|>``, or ``[SEP]`` if there
is none. Missing tokens are added; all others keep their order::

    vocabulary            for BERT                                         for GPT-2
    <|endoftext|> a b     [PAD] [UNK] [CLS] [SEP] [MASK] <|endoftext|> a b   unchanged
    [PAD] .. [MASK] a b   unchanged                                        unchanged, texts end with [SEP]
    a b                   [PAD] [UNK] [CLS] [SEP] [MASK] a b               a b <|endoftext|>
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from harness.errors import HarnessError
from harness.pretraining.text.tokenizers import END, SPECIAL

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

FILE = "tokenizer.json"
KINDS = ("WordPiece", "BPE")
TokenizerJson: TypeAlias = dict[str, Any]
"""Content of ``tokenizer.json``."""


def tokenizer_file(where: str) -> Path:
    """Return the file that ``encoder.tokenizer`` names: a file, or a folder that contains one.

    Raises:
        HarnessError: there is no such file.
    """
    path = Path(where).expanduser()
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise HarnessError(
            f"encoder.tokenizer={where}: no {FILE} found; give the output of another run or such a file"
        )
    return path


def shared_word_pieces(where: str, *, positions: int) -> PreTrainedTokenizerFast:
    """Load a tokenizer for BERT's objective: :data:`SPECIAL` are ids 0 to 4, rows ``[CLS] a [SEP] b [SEP]``.

    Args:
        where: see :func:`tokenizer_file`.
        positions: maximum row length.

    Raises:
        HarnessError: the file cannot be read, or is of another kind.
    """
    from tokenizers import processors

    data = _read(where)
    tokens = _tokens_by_id(data)
    if tokens[: len(SPECIAL)] != list(SPECIAL):
        _renumber(data, [*SPECIAL, *(token for token in tokens if token not in SPECIAL)])
    backend = _backend(data, special=SPECIAL)
    pair = [(name, SPECIAL.index(name)) for name in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=pair
    )
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return _wrap(backend, positions, dict(zip(names, SPECIAL, strict=True)))


def shared_byte_pairs(where: str, *, positions: int) -> tuple[PreTrainedTokenizerFast, str]:
    """Load a tokenizer for GPT-2's objective.

    Arguments and errors are those of :func:`shared_word_pieces`.

    Returns:
        The tokenizer, and the token that ends a text.
    """
    data = _read(where)
    tokens = _tokens_by_id(data)
    end = next((name for name in (END, "[SEP]") if name in tokens), END)
    if end not in tokens:
        _renumber(data, [*tokens, end])
    names = {"bos_token": end, "eos_token": end}
    if "[UNK]" in tokens:
        names["unk_token"] = "[UNK]"
    return _wrap(_backend(data, special=[end]), positions, names), end


def is_spaced(backend: Tokenizer) -> bool:
    """Whether the blank before a word is part of its first token, as in GPT-2's vocabulary."""
    return "ByteLevel" in str(json.loads(backend.to_str()).get("pre_tokenizer"))


def _read(where: str) -> TokenizerJson:
    path = tokenizer_file(where)
    try:
        data: TokenizerJson = json.loads(path.read_text(encoding="utf-8"))
        kind = data["model"]["type"]
    except (ValueError, KeyError, TypeError) as e:
        raise HarnessError(f"{path}: not a tokenizer ({type(e).__name__}: {e})") from e
    if kind not in KINDS:
        raise HarnessError(f"{path}: unsupported vocabulary of kind {kind}; expected {' or '.join(KINDS)}")
    return data


def _tokens_by_id(data: TokenizerJson) -> list[str]:
    """All tokens in the order of their ids."""
    ids = dict(data["model"]["vocab"]) | {a["content"]: a["id"] for a in data.get("added_tokens") or ()}
    return sorted(ids, key=lambda token: int(ids[token]))


def _renumber(data: TokenizerJson, tokens: Sequence[str]) -> None:
    """Give the tokens the ids 0, 1, ... in this order, in place."""
    ids = {token: n for n, token in enumerate(tokens)}
    data["model"]["vocab"] = ids
    for added in data.get("added_tokens") or ():
        added["id"] = ids[added["content"]]


def _backend(data: TokenizerJson, *, special: Sequence[str]) -> Tokenizer:
    from tokenizers import Tokenizer

    processor = data.get("post_processor")
    # a template refers to special tokens by ids, which may have changed; ByteLevel has no ids
    if (processor or {}).get("type") != "ByteLevel":
        processor = None
    plain = {**data, "post_processor": processor, "truncation": None, "padding": None}
    backend = Tokenizer.from_str(json.dumps(plain))
    backend.add_special_tokens(list(special))
    return backend


def _wrap(backend: Tokenizer, positions: int, names: dict[str, str]) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend, model_max_length=positions, **names
    )
