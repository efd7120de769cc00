"""Read the weights of an AWD-LSTM in every published format, and write two formats.

Nothing in the files is executed: only tensors are read. fastai stores the raw recurrent matrix as
``rnns.0.weight_hh_l0_raw`` (``rnns.0.module.weight_hh_l0_raw`` in its first versions), sometimes together
with the dropped one; the table may be repeated as ``encoder_dp.emb`` or ``encoder_with_dropout.embed``, and
as the decoder. The names of a classifier's encoder have an additional ``module``; its head is ignored.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from harness.encoders.awd_lstm.files import OPTIONS, read_backwards, read_vocabulary
from harness.encoders.awd_lstm.model import Sizes
from harness.errors import HarnessError

_OUTER = re.compile(r"^(?:module\.)?(?:0\.)?(?:module\.)?")
_TABLE = re.compile(r"(?:table|encoder|encoder_dp\.emb|encoder_with_dropout\.embed)\.weight$")
_RNN = re.compile(r"rnns\.(\d+)\.(?:module\.)?((?:weight|bias)_[ih]h_l0)(_raw)?$")
_DECODER = re.compile(r"^(?:module\.)?(?:1\.)?decoder\.(weight|bias)$")


@dataclass(slots=True)
class Checkpoint:
    """The content of an encoder's files.

    Attributes:
        weights: tensors by the names of this package; ``decoder.bias`` only if the file contains one.
        vocabulary: the words, one per row of the table.
        backwards: trained from right to left; None = not stated.
        counts: numbers of ``matched``, ``missing`` and ``unexpected`` tensors of the file.
    """

    weights: dict[str, Tensor]
    vocabulary: list[str]
    backwards: bool | None = None
    counts: dict[str, int] = field(default_factory=dict)


def read_checkpoint(files: Mapping[str, Path]) -> Checkpoint:
    """Read and check an encoder's files.

    Raises:
        HarnessError: the message names the file, the tensor, its shape and the expected shape.
    """
    path = files["weights"]
    weights, counts = _named(read_tensors(path), path)
    vocabulary = read_vocabulary(files["vocabulary"])
    _check(weights, path, counts)
    rows = weights["table.weight"].shape[0]
    if rows != len(vocabulary):
        raise HarnessError(
            f"{files['vocabulary']}: {len(vocabulary)} words, but the table in {path.name} has {rows} rows: "
            "vocabulary and weights are not of one model"
        )
    return Checkpoint(weights, vocabulary, read_backwards(files.get("options")), counts)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file by their names in the file, as float32.

    Raises:
        HarnessError: an unreadable file, or not a dictionary of tensors.
    """
    data: object
    try:
        if path.suffix == ".safetensors":
            data = load_file(path)
        else:
            with torch.serialization.safe_globals(_ignored_types()):
                data = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as e:
        raise HarnessError(
            f"{path}: not a file of tensors that can be read safely ({_first_line(e)}); "
            "with fastai, save it again: learn.save(NAME, with_opt=False) or learn.save_encoder(NAME)"
        ) from e
    if isinstance(data, Mapping) and isinstance(data.get("model"), Mapping):  # learn.save
        data = data["model"]
    if not isinstance(data, Mapping) or not data:
        raise HarnessError(f"{path}: contains a {type(data).__name__}, expected tensors by name")
    return {
        str(k): _as_float32(v, key=str(k), path=path) for k, v in data.items() if isinstance(v, torch.Tensor)
    }


def _as_float32(tensor: Tensor, *, key: str, path: Path) -> Tensor:
    """Convert a dense floating-point tensor to float32 and check that it is finite."""
    if tensor.layout != torch.strided:
        raise HarnessError(f"{path}: {key} is a sparse tensor; save it as a dense one")
    if not tensor.is_floating_point():
        return tensor  # not a weight: rejected later by name or dtype
    out = tensor.float()
    if not bool(torch.isfinite(out).all()):
        raise HarnessError(f"{path}: {key} contains non-finite numbers: the training diverged")
    return out


def _first_line(error: Exception) -> str:
    """Return the first line of an error without terminal colours."""
    line = re.sub(r"\x1b\[[0-9;]*m|\x1b", "", str(error)).strip().partition("\n")[0]
    return f"{type(error).__name__}: {line[:200]}"


class _Ignored(list[object]):
    """Replaces objects of an optimizer's state, which are not used."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()

    def __new__(cls, *_: object, **__: object) -> _Ignored:
        return super().__new__(cls)

    def __setstate__(self, _: object) -> None:
        pass


def _ignored_types() -> list[Callable[..., object] | tuple[Callable[..., object], str]]:
    """Return replacements for the non-tensor types in fastai's optimizer state, so that none of them is
    called."""
    names = ["fastcore.foundation.L", "numpy.dtype"]
    names += [f"numpy.{core}.multiarray.scalar" for core in ("core", "_core")]
    names += [f"numpy.dtypes.{kind}DType" for kind in ("Float64", "Float32", "Int64", "Int32", "Bool")]
    parts = [name.rpartition(".") for name in names]
    return [type(tail, (_Ignored,), {"__module__": head, "__qualname__": tail}) for head, _, tail in parts]


def _named(tensors: Mapping[str, Tensor], path: Path) -> tuple[dict[str, Tensor], dict[str, int]]:
    """Rename the tensors. Of a raw and a dropped recurrent matrix, the raw one is used."""
    out: dict[str, Tensor] = {}
    raw: set[str] = set()
    matched = 0
    for key, tensor in tensors.items():
        if m := _DECODER.match(key):
            matched += 1
            out[f"decoder.{m[1]}"] = tensor
            continue
        inner = _OUTER.sub("", key)
        if _TABLE.match(inner):
            matched += 1
            out.setdefault("table.weight", tensor)
        elif m := _RNN.match(inner):
            matched += 1
            name = f"rnns.{m[1]}.{m[2]}"
            if m[3]:
                raw.add(name)
            if m[3] or name not in raw:
                out[name] = tensor
        elif inner.startswith("rnns.") and "_reverse" in inner:
            raise HarnessError(
                f"{path}: {key} belongs to a bidirectional layer; the two directions of ULMFiT "
                "are two models: use encoder=ulmfit_bi"
            )
    decoder, table = out.pop("decoder.weight", None), out.get("table.weight")
    if decoder is not None and table is not None and not torch.equal(decoder, table):
        raise HarnessError(
            f"{path}: the decoder's matrix differs from the embedding table: only tied weights are supported"
        )
    return out, {"matched": matched, "unexpected": len(tensors) - matched}


def _check(weights: Mapping[str, Tensor], path: Path, counts: dict[str, int]) -> None:
    """Check that the tensors are those of one complete AWD-LSTM, with matching shapes."""
    numbers = {int(k.split(".")[1]) for k in weights if k.startswith("rnns.")}
    layers = 1 + max(numbers, default=-1)
    if len(numbers) < layers:
        absent = next(n for n in range(layers) if n not in numbers)
        raise HarnessError(f"{path}: contains layer {layers - 1}, but not layer {absent}: incomplete")
    table, first = weights.get("table.weight"), weights.get("rnns.0.weight_hh_l0")
    total = counts["matched"] + counts["unexpected"]
    if table is None or first is None or table.ndim != 2 or first.ndim != 2:
        missing = [k for k in ("encoder.weight", "rnns.0.weight_hh_l0") if _absent(k, weights)]
        raise HarnessError(
            f"{path}: {counts['matched']} of {total} tensors matched an AWD-LSTM's names, without "
            f"{' and '.join(missing) or 'two-dimensional matrices'}: not a file of fastai's AWD_LSTM"
        )
    sizes = Sizes(table.shape[0], table.shape[1], first.shape[1], layers)
    shapes = sizes.shapes() | ({"decoder.bias": (sizes.words,)} if "decoder.bias" in weights else {})
    missing = [k for k in shapes if k not in weights]
    counts["missing"] = len(missing)
    if missing:
        raise HarnessError(
            f"{path}: {counts['matched']} of {total} tensors matched, {len(missing)} missing "
            f"({', '.join(missing[:3])}), {counts['unexpected']} unexpected: the file is incomplete"
        )
    for name, shape in shapes.items():
        if tuple(weights[name].shape) != shape:
            raise HarnessError(f"{path}: {name} has shape {tuple(weights[name].shape)}, expected {shape}")
        if not weights[name].is_floating_point():
            raise HarnessError(
                f"{path}: {name} contains {weights[name].dtype}, expected floating-point numbers"
            )


def _absent(key: str, weights: Mapping[str, Tensor]) -> bool:
    return {"encoder.weight": "table.weight"}.get(key, key) not in weights


def write_model(
    folder: Path, weights: Mapping[str, Tensor], vocabulary: Sequence[str], *, backwards: bool = False
) -> Path:
    """Write ``model.safetensors``, ``vocabulary.json`` and ``options.json``.

    Args:
        folder: created if it does not exist.
        weights: :meth:`harness.encoders.awd_lstm.model.AwdLstmLM.weights`.
        vocabulary: one word per row of the table.
        backwards: trained from right to left.
    """
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.detach().cpu().contiguous() for k, v in weights.items()}, folder / "model.safetensors")
    (folder / "vocabulary.json").write_text(
        json.dumps(list(vocabulary), ensure_ascii=False), encoding="utf-8"
    )
    (folder / OPTIONS).write_text(json.dumps({"backwards": backwards}), encoding="utf-8")
    return folder


def write_fastai(
    folder: Path, weights: Mapping[str, Tensor], vocabulary: Sequence[str], *, name: str = "model"
) -> Path:
    """Write ``<name>.pth`` and ``<name>_vocab.pkl`` for fastai 2 (``learn.load`` and ``load_pretrained``).

    Args:
        folder, weights, vocabulary: as for :func:`write_model`.
        name: stem of both file names.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table = weights["table.weight"].detach().cpu()
    out = {"0.encoder.weight": table, "0.encoder_dp.emb.weight": table}
    for key, tensor in weights.items():
        if key.startswith("rnns."):
            _, layer, kind = key.split(".")
            place = "weight_hh_l0_raw" if kind == "weight_hh_l0" else f"module.{kind}"
            out[f"0.rnns.{layer}.{place}"] = tensor.detach().cpu()
    out |= {"1.decoder.weight": table, "1.decoder.bias": weights["decoder.bias"].detach().cpu()}
    torch.save(out, folder / f"{name}.pth")
    with (folder / f"{name}_vocab.pkl").open("wb") as f:
        pickle.dump(list(vocabulary), f)
    return folder
