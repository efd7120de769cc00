"""Rows of labelled data from csv, tsv, jsonl, json, Parquet, Arrow and plain ``label text`` files.

Values are not converted: a text is never read as a missing value, nor a label as a number. csv files are
read with doubled quotes and quoted line breaks (RFC 4180); tsv files without quoting, as in GLUE, unless the
file shows that quotes enclose its fields (:mod:`harness.data.reading.formats.dialect`).

Parquet and Arrow files are memory-mapped by pyarrow and ``datasets``. Text formats are parsed here, because
the readers of ``datasets`` (pandas and pyarrow) change data without notice: they turn the texts ``NA`` and
``null`` into missing values and numeric labels into numbers, always treat quotes in tsv files as marks,
assume UTF-8, unify the types of JSON lines, and do not report the line of a bad row. CoNLL and SQuAD files,
which ``datasets`` reads by loading scripts only, are parsed by the tasks for the same reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePath

from harness.data.reading.files import decode, read_file
from harness.data.reading.formats.arrow import class_names, of_dataset, read_arrow, read_parquet
from harness.data.reading.formats.dialect import fields, first_lines, lines
from harness.data.reading.formats.json_rows import parse_json, read_json, read_jsonl, starts_with_object
from harness.data.reading.formats.labelled import (
    FASTTEXT,
    read_fasttext,
    read_label_text,
    read_tabbed,
    read_text_label,
)
from harness.data.reading.formats.separated import read_separated
from harness.data.reading.log import ReadLog
from harness.data.reading.table import ArrowColumn, DataTable, ReadOptions, TextFile
from harness.errors import HarnessError

__all__ = ["ArrowColumn", "DataTable", "ReadOptions", "class_names", "of_dataset", "read_table"]

_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".ft": "fasttext",
}
_TABBED = "tabbed"
"""Lines of two fields, of which one is the label; recognised only."""
_MOST = 0.9
_EXPORT = "which is not read as data; export it as csv, jsonl or Parquet"
_REFUSED = {
    b"\x89hdf": f"an HDF5 file, {_EXPORT}",
    b"\x80\x04\x95": f"a Python pickle, {_EXPORT}",
    b"\x93numpy": f"a NumPy file, {_EXPORT}",
    b"%pdf-": "a PDF document, not data",
    b"version https://git-lfs": "a pointer of Git LFS, not the data; fetch them with git lfs pull",
    b"<!doctype html": "a web page, not data; the download has failed",
    b"<html": "a web page, not data; the download has failed",
}
"""What is no data file, by its first bytes in lower case."""


def read_table(path: Path, how: ReadOptions | None = None, *, log: ReadLog | None = None) -> DataTable:
    """Read all rows of a file, which may be compressed or in an archive (``ARCHIVE::FILE``).

    Args:
        path: the file.
        how: options.
        log: receives how the file was read: format, delimiter, quoting, encoding.

    Raises:
        HarnessError: names the file, the line and the problem.
    """
    how, log = how or ReadOptions(), log or ReadLog()
    given = how.format is not None
    if (how.format or _by_name(path)) == "arrow" and path.is_file():
        log.fact(path, "format", "arrow", given=given)
        return read_arrow(path)
    if (how.format or _by_name(path)) == "parquet" and _is_parquet(path):
        log.fact(path, "format", "parquet", given=given)
        return read_parquet(path)
    content = read_file(path, log=log)
    kind = how.format or ("parquet" if content.data.startswith(b"PAR1") else _by_name(content.name))
    if kind == "parquet":
        log.fact(path, "format", kind, given=given)
        return read_parquet(path, content.data)
    _check_binary(path, content.data)
    file = TextFile(
        path, decode(content.data, path=path, encoding=how.encoding, log=log), how, log, content.part
    )
    if not file.text.strip():
        raise HarnessError(f"{path}: the file is empty")
    kind = kind or _sniff(file)
    log.fact(path, "format", _SHOWN.get(kind, kind), given=given)
    if content.part is not None and kind != "json":
        raise HarnessError(
            f"{path}: {content.part!r:.60} after :: is a key of a JSON file, or a file of an archive"
        )
    return _READERS[kind](file)


def _by_name(name: PurePath) -> str | None:
    return _SUFFIXES.get(name.suffix.lower())


def _is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as f:
            return f.read(4) == b"PAR1"
    except OSError:
        return False


def _check_binary(path: Path, data: bytes) -> None:
    head = data[:200].lstrip().lower()
    for magic, what in _REFUSED.items():
        if head.startswith(magic):
            raise HarnessError(f"{path}: {what}")


def _sniff(file: TextFile) -> str:
    """Recognise the format of a text without a known suffix."""
    text, how = file.text, file.how
    first = first_lines(text, 1)[0]
    if first.startswith(FASTTEXT):
        return "fasttext"
    if first.lstrip()[:1] in ("{", "["):
        kind = _json_kind(text)
        if kind:
            return kind
    cells = first.split("\t")
    if len(cells) > 1 and (how.columns or how.has_header(cells)):
        return "tsv"
    if "\t" in first or text.count("\t") > 10:
        tabs = [line.count("\t") for _, line in lines(text)]
        if sum(map(bool, tabs)) > _MOST * len(tabs):
            return _TABBED if sorted(tabs)[len(tabs) // 2] == 1 else "tsv"
    if how.delimiter or any(how.has_header(fields(first, d)) for d in ",;|"):
        return "csv"
    return "label_text"


def _json_kind(text: str) -> str | None:
    if starts_with_object(text):
        return "jsonl"
    try:
        parse_json(text, "")
    except HarnessError:
        return None
    return "json"


_READERS: dict[str, Callable[[TextFile], DataTable]] = {
    "csv": lambda file: read_separated(file, default=","),
    "tsv": lambda file: read_separated(file, default="\t"),
    "jsonl": read_jsonl,
    "json": read_json,
    "label_text": read_label_text,
    "text_label": read_text_label,
    "fasttext": read_fasttext,
    _TABBED: read_tabbed,
}
_SHOWN = {_TABBED: "label and text, separated by tabs"}
