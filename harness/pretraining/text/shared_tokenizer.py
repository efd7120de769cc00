"""The vocabulary of another output, for models that shall differ in nothing but their objective.

A ``tokenizer.json`` of word pieces or byte pairs is taken over with its rules and its tokens. BERT's objective
needs its five special tokens at the beginning, GPT-2's one that ends a text: ``<|endoftext|>``, or ``[SEP]``
where there is none. What is missing is added, and everything else keeps its order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.pretraining.text.tokenizers import END, SPECIAL

FILE = "tokenizer.json"
KINDS = ("WordPiece", "BPE")


def tokenizer_file(where: str) -> Path:
    """The file that ``encoder.tokenizer`` names: itself, or in a folder.

    Raises:
        HarnessError: there is none.
    """
    path = Path(where).expanduser()
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise HarnessError(f"encoder.tokenizer={where}: no {FILE} is there; name an output, or such a file")
    return path


def shared_word_pieces(where: str, *, positions: int) -> Any:
    """A tokenizer for BERT's objective: :data:`SPECIAL` are tokens 0 to 4, ``[CLS] a [SEP] b [SEP]`` its rows.

    Args:
        where: see :func:`tokenizer_file`.
        positions: longest row.

    Raises:
        HarnessError: it cannot be read, or is of another kind.
    """
    from tokenizers import processors

    data = _read(where)
    tokens = _units(data)
    if tokens[: len(SPECIAL)] != list(SPECIAL):
        _renumber(data, [*SPECIAL, *(u for u in tokens if u not in SPECIAL)])
    backend = _backend(data, special=SPECIAL)
    pair = [(name, SPECIAL.index(name)) for name in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=pair
    )
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return _whole(backend, positions, dict(zip(names, SPECIAL, strict=True)))


def shared_byte_pairs(where: str, *, positions: int) -> tuple[Any, str]:
    """A tokenizer for GPT-2's objective, and the name of the token that ends a text; arguments and errors as
    for :func:`shared_word_pieces`."""
    data = _read(where)
    tokens = _units(data)
    end = next((name for name in (END, "[SEP]") if name in tokens), END)
    if end not in tokens:
        _renumber(data, [*tokens, end])
    if (data.get("post_processor") or {}).get("type") != "ByteLevel":
        data["post_processor"] = None
    names = {"bos_token": end, "eos_token": end}
    if "[UNK]" in tokens:
        names["unk_token"] = "[UNK]"
    return _whole(_backend(data, special=[end]), positions, names), end


def is_spaced(backend: Any) -> bool:
    """Whether a blank before a word is part of its first token, as in GPT-2's vocabulary."""
    return "ByteLevel" in str(json.loads(backend.to_str()).get("pre_tokenizer"))


def _read(where: str) -> dict[str, Any]:
    path = tokenizer_file(where)
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        kind = data["model"]["type"]
    except (ValueError, KeyError, TypeError) as e:
        raise HarnessError(f"{path}: is no tokenizer ({type(e).__name__}: {e})") from e
    if kind not in KINDS:
        raise HarnessError(f"{path}: a vocabulary of the kind {kind}; {' or '.join(KINDS)} is wanted")
    return data


def _units(data: dict[str, Any]) -> list[str]:
    """All tokens in the order of their numbers."""
    numbers = dict(data["model"]["vocab"]) | {a["content"]: a["id"] for a in data.get("added_tokens") or ()}
    return sorted(numbers, key=lambda token: numbers[token])


def _renumber(data: dict[str, Any], tokens: Sequence[str]) -> None:
    numbers = {token: n for n, token in enumerate(tokens)}
    data["model"]["vocab"] = numbers
    for added in data.get("added_tokens") or ():
        added["id"] = numbers[added["content"]]


def _backend(data: dict[str, Any], *, special: Sequence[str]) -> Any:
    from tokenizers import Tokenizer

    # a template names tokens by numbers that may have changed
    told = {**data, "post_processor": data.get("post_processor"), "truncation": None, "padding": None}
    if (told["post_processor"] or {}).get("type") != "ByteLevel":
        told["post_processor"] = None
    backend = Tokenizer.from_str(json.dumps(told))
    backend.add_special_tokens(list(special))
    return backend


def _whole(backend: Any, positions: int, names: dict[str, str]) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=positions, **names)
