"""Read the words and vectors of a file in order, block by block. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from harness.encoders.download import resolve_file
from harness.encoders.facts import EncoderFacts
from harness.encoders.static.vector_files import (
    FIELD,
    MAX_DIM,
    Layout,
    detect,
    is_utf8,
    number_in,
    open_bytes,
    read_exactly,
    show,
)
from harness.errors import HarnessError

BLOCK = 16 << 20
MAX_LINE = 400 * MAX_DIM
"""Bytes of the longest line that is read."""
FIRST_BYTES, FIRST_LINES = 1 << 20, 50
"""What is parsed before a cell starts."""


@dataclass(slots=True)
class Chunk:
    """Consecutive words of a file.

    Attributes:
        words: the words.
        vectors: (len(words), dim) float32.
        undecodable: number of words that are not UTF-8; invalid bytes are replaced by U+FFFD.
    """

    words: list[str]
    vectors: np.ndarray
    undecodable: int = 0


def check_vectors(config: Mapping[str, object], cache_dir: Path) -> EncoderFacts:
    """Detect the format and parse the first lines of a file of word vectors (``_check_``).

    Raises:
        HarnessError: it is not a file of word vectors.
    """
    check_first_words(resolve_file(config, cache_dir), config)
    return EncoderFacts(num_layers=0)


def check_first_words(path: Path, config: Mapping[str, object]) -> None:
    """Detect the format of a file and parse its first lines; ``config`` has the options ``member``
    and ``dim``.

    Raises:
        HarnessError: as for :func:`read_chunks`.
    """
    member = None if config.get("member") is None else str(config["member"])
    dim = config.get("dim")
    layout = detect(path, member=member, dim=dim if isinstance(dim, int) else None)
    if layout.binary:
        return
    with open_bytes(path, member) as stream:
        read_exactly(stream, layout.skip)
        head = read_exactly(stream, FIRST_BYTES)
    lines = head.split(b"\n")
    complete = lines[:-1] if len(head) == FIRST_BYTES else lines
    for number, line in enumerate(complete[:FIRST_LINES], 1 if layout.count is None else 2):
        if line.strip(b" \t\r"):
            _line(line, number, path, layout)


def read_chunks(path: Path, layout: Layout, *, member: str | None = None) -> Iterator[Chunk]:
    """Yield all words of a file in order, including duplicates.

    Raises:
        HarnessError: a line is not a word followed by ``dim`` finite numbers (the message names file, line
            and value), or the file has fewer words than its header declares.
    """
    with open_bytes(path, member) as stream:
        read_exactly(stream, layout.skip)
        chunks = _binary_chunks(stream, path, layout) if layout.binary else _text_chunks(stream, path, layout)
        total = 0
        for chunk in chunks:
            total += len(chunk.words)
            yield chunk
    if layout.count is not None and total < layout.count:
        raise HarnessError(
            f"{path}: the header declares {layout.count} words, but the file contains {total}; "
            "if the copy is incomplete, download it again; otherwise correct the header"
        )


def _text_chunks(stream: IO[bytes], path: Path, layout: Layout) -> Iterator[Chunk]:
    # the header is line 1
    line = 1 if layout.count is None else 2
    rest = b""
    while data := stream.read(BLOCK):
        # only complete lines are parsed: bytes after the last newline are kept for the next block
        cut = data.rfind(b"\n") + 1
        if not cut:
            rest += data
            if len(rest) > MAX_LINE:
                raise _line_error(path, line, f"the line has more than {MAX_LINE} bytes", layout)
            continue
        block, rest = rest + data[:cut], data[cut:]
        yield _text_block(block, line, path, layout)
        line += block.count(b"\n")
    if rest.strip():
        yield _text_block(rest + b"\n", line, path, layout)


def _text_block(block: bytes, first: int, path: Path, layout: Layout) -> Chunk:
    """Parse a block of complete lines: regular lines by columns, irregular ones line by line."""
    if b"\r\n" in block:
        block = block.replace(b"\r\n", b"\n")
    if b" \n" in block:  # fastText ends its lines with a space
        block = block.replace(b" \n", b"\n")
    undecodable = 0
    try:
        block.decode()
    except UnicodeDecodeError:
        undecodable = sum(not is_utf8(line) for line in block.split(b"\n"))
        block = block.decode("utf-8", "replace").encode()
    columns = _columnar(block, layout)
    # line number of each row, for messages; _irregular() skips empty lines
    numbers: Sequence[int] = range(first, first + block.count(b"\n"))
    if columns is None:
        numbers, columns = _irregular(block, first, path, layout)
    words, vectors = columns
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        value = vectors[row][~np.isfinite(vectors[row])][0]
        raise _line_error(path, numbers[row], f"the vector of {words[row]!r} contains {value}", layout)
    return Chunk(words, vectors, undecodable)


Columns = tuple[list[str], np.ndarray]


def _columnar(block: bytes, layout: Layout) -> Columns | None:
    """Parse regular lines in one call; None if any line is not a word without spaces and ``dim`` numbers."""
    import pyarrow as pa
    from pyarrow import csv

    lines = block.count(b"\n")
    if block.startswith((b"\n", b"\xef\xbb\xbf")) or b"\n\n" in block or b"\r" in block or not lines:
        return None
    numbers = [str(i) for i in range(layout.dim)]
    try:
        table = csv.read_csv(
            pa.BufferReader(block),
            read_options=csv.ReadOptions(column_names=["word", *numbers]),
            parse_options=csv.ParseOptions(delimiter=layout.separator.decode(), quote_char=False),
            convert_options=csv.ConvertOptions(
                column_types={"word": pa.string(), **dict.fromkeys(numbers, pa.float32())},
                null_values=[],  # "null" and "NA" are words, and an empty number is an error
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != lines:
        return None
    vectors = np.empty((lines, layout.dim), dtype=np.float32)
    start = 0
    # row groups of 1 MiB of text: input and output of the transposition fit into the cache
    for batch in table.to_batches():
        stop = start + batch.num_rows
        np.stack([column.to_numpy() for column in batch.columns[1:]], axis=1, out=vectors[start:stop])
        start = stop
    return table["word"].to_pylist(), vectors


def _irregular(block: bytes, first: int, path: Path, layout: Layout) -> tuple[list[int], Columns]:
    lines = block.split(b"\n")[:-1]
    # lines that the fast reader cannot take; the others are still parsed at once
    slow = {i for i, line in enumerate(lines) if line.count(layout.separator) != layout.dim or b"\r" in line}
    regular = b"".join(line + b"\n" for i, line in enumerate(lines) if i not in slow)
    columns = _columnar(regular, layout)
    if columns is None:
        columns, slow = ([], np.empty((0, layout.dim), np.float32)), set(range(len(lines)))
    # line of each regular row: with lines 0 1 2 3 and slow {1}, rows 0 1 2 are the lines 0 2 3
    fast = [i for i in range(len(lines)) if i not in slow]
    words = dict(zip(fast, columns[0], strict=True))
    vectors = dict(zip(fast, columns[1], strict=True))
    for i in sorted(slow):
        if lines[i].strip(b" \t\r"):
            words[i], vectors[i] = _line(lines[i], first + i, path, layout)
    order = sorted(words)
    stacked = np.stack([vectors[i] for i in order]) if order else columns[1]
    return [first + i for i in order], ([words[i] for i in order], stacked)


def _line(line: bytes, number: int, path: Path, layout: Layout) -> tuple[str, np.ndarray]:
    fields = list(FIELD.finditer(line.rstrip(b" \t\r")))
    if len(fields) < layout.dim or fields[-layout.dim].start() == 0:
        raise _line_error(
            path, number, f"{show(line)} has {max(0, len(fields) - 1)} numbers after the word", layout
        )
    numbers = [f.group() for f in fields[-layout.dim :]]
    values = [number_in(n) for n in numbers]
    if None in values:
        value = numbers[values.index(None)]
        raise _line_error(path, number, f"{show(value)} in {show(line)} is not a number", layout)
    # a word may contain spaces: in ". . . 0.1 0.2" with dim 2 it is ". . ."
    word = line[: fields[-layout.dim].start()].rstrip(b" \t").decode("utf-8", "replace")
    # 1e39 overflows to infinity, which is then reported as not finite
    with np.errstate(over="ignore"):
        return word, np.array(values, dtype=np.float64).astype(np.float32)


def _binary_chunks(stream: IO[bytes], path: Path, layout: Layout) -> Iterator[Chunk]:
    width, left, at, buffer = 4 * layout.dim, layout.count or 0, 0, b""
    while left:
        more = stream.read(BLOCK)
        buffer, at = buffer[at:] + more, 0
        names: list[bytes] = []
        parts: list[bytes] = []
        while left:
            # the bytes of a vector may contain spaces too, so a search never starts inside a vector
            space = buffer.find(b" ", at)
            if space < 0 or space + 1 + width > len(buffer):
                break
            # some writers end a vector with a newline
            names.append(buffer[at:space].lstrip(b"\n"))
            at = space + 1 + width
            parts.append(buffer[space + 1 : at])
            left -= 1
        if names:
            yield _binary_chunk(names, parts, path, layout)
        if not more:
            return
    rest = (buffer[at:] + stream.read(1024)).strip(b"\n")
    if rest:
        raise HarnessError(
            f"{path}: {show(rest[:40])} follows the {layout.count} words declared by the header; "
            "correct the header"
        )


def _binary_chunk(names: list[bytes], parts: list[bytes], path: Path, layout: Layout) -> Chunk:
    vectors = np.frombuffer(b"".join(parts), dtype="<f4").reshape(len(parts), layout.dim).astype(np.float32)
    words = [n.decode("utf-8", "replace") for n in names]
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        word = words[int(np.flatnonzero(~finite)[0])]
        raise HarnessError(
            f"{path}: the vector of {word[:80]!r} contains a non-finite number; the file may be damaged: "
            "download it again"
        )
    return Chunk(words, vectors, sum(not is_utf8(n) for n in names))


def _line_error(path: Path, line: int, problem: str, layout: Layout) -> HarnessError:
    return HarnessError(
        f"{path}, line {line}: {problem}; expected a word and {layout.dim} numbers. "
        f"Correct or delete the line, or set encoder.dim if {layout.dim} is not the vector size"
    )
