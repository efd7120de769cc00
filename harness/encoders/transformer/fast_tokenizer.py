"""Load a checkpoint's tokenizer as ``AutoTokenizer`` does, and check its ids against the embedding table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.encoders.json_files import read_json_object
from harness.encoders.transformer.encoder import position_limit
from harness.encoders.transformer.files import TOKENIZER_CONFIG, VOCABULARY, first_line
from harness.encoders.transformer.probe import OWN_SEGMENTS
from harness.encoders.transformer.structure import embedding_table
from harness.encoders.transformer.template import read_template
from harness.encoders.transformer.tokenizer import HFTokenizer
from harness.errors import HarnessError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend
    from transformers import PreTrainedModel

_MODELS_WITH_CASE = ("tokenizer.json", "vocab.json")


def load_tokenizer(
    view: Path, folder: Path, files: Mapping[str, Path], model: PreTrainedModel
) -> HFTokenizer:
    """Load the checkpoint's fast tokenizer.

    Its class is that of ``tokenizer_config.json``, otherwise that of the architecture. The class
    decides what it
    takes from ``tokenizer.json``; older files (``vocab.txt``, ``vocab.json`` with ``merges.txt``,
    SentencePiece models) are converted.

    Args:
        view: contains only the files.
        folder: the checkpoint, for messages.
        files: by name.
        model: with the embedding table.

    Raises:
        HarnessError: it cannot be built, or it produces ids beyond the embedding table.
    """
    from transformers import AutoTokenizer

    options: dict[str, Any] = {"do_lower_case": False} if _is_cased(files) else {}
    try:
        loaded: Any = AutoTokenizer.from_pretrained(
            str(view), local_files_only=True, trust_remote_code=False, **options
        )
        backend = loaded.backend_tokenizer
    except BaseException as e:
        if not isinstance(e, Exception) and type(e).__name__ != "PanicException":  # of the tokenizers library
            raise
        reason = first_line(e, view=view, folder=folder)
        raise HarnessError(
            f"{folder}: no fast tokenizer can be built from {', '.join(files)} ({reason})"
        ) from e
    rows = len(embedding_table(model))
    single, pair = read_template(backend, pair=False), read_template(backend, pair=True)
    _check_ids(backend, [*single.ids, *pair.ids], rows, folder)
    pad = loaded.pad_token_id
    segments = (getattr(model.config, "type_vocab_size", 0) or 0) > 1
    return HFTokenizer(
        backend,
        single,
        pair=pair,
        unknown=_unknown(loaded.unk_token, backend),
        pad_id=pad if pad is not None and pad < rows else 0,
        types=segments or model.config.model_type in OWN_SEGMENTS,
        max_length=position_limit(model),
    )


def _is_cased(files: Mapping[str, Path]) -> bool:
    """Return whether ``vocab.txt`` has upper-case pieces, and no file says how to treat case: a vocabulary of
    lower-cased text has none."""
    if VOCABULARY not in files or any(name in files for name in _MODELS_WITH_CASE):
        return False
    if TOKENIZER_CONFIG in files and "do_lower_case" in read_json_object(
        files[TOKENIZER_CONFIG], finite=False
    ):
        return False
    text = files[VOCABULARY].read_text(encoding="utf-8", errors="replace")
    pieces = (line.strip() for line in text.splitlines())
    return any(p != p.lower() for p in pieces if not (p.startswith(("[", "<")) and p.endswith(("]", ">"))))


def _check_ids(backend: Backend, special: list[int], rows: int, folder: Path) -> None:
    """Refuse ids beyond the table that texts or templates can produce: an unused padding
    token may be there."""
    size = backend.get_vocab_size(with_added_tokens=True)
    added = backend.get_added_tokens_decoder()
    if max([size - 1, *special, *added]) < rows:
        return
    unused = {i for i, token in added.items() if token.special} - set(special)
    beyond = {i: piece for piece, i in backend.get_vocab().items() if i >= rows and i not in unused and piece}
    if not beyond:
        return
    first = min(beyond)
    what = "the added token" if first in added else "the piece"
    raise HarnessError(
        f"{folder}: {what} {beyond[first]!r} has id {first}, but the embedding table has {rows} "
        f"rows (ids 0 to "
        f"{rows - 1}; {len(beyond)} ids are beyond it): tokenizer and weights are not of the same model; "
        "call resize_token_embeddings and save both, or remove the token"
    )


def _unknown(default: str | None, backend: Backend) -> int | None:
    name = getattr(backend.model, "unk_token", None) or default
    return None if name is None else backend.token_to_id(name)
