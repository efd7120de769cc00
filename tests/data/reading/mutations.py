"""Valid files of every format, and random changes to them, for fuzzing the readers."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from harness.data.reading.log import ReadLog
from harness.data.reading.tables import ReadOptions, read_table
from harness.errors import HarnessError

ROWS = [
    {"text": f"the “film” number {i}, café\tand" if i % 5 else 'he said "so"', "label": "ab"[i % 2]}
    for i in range(30)
]
SPECIAL = (
    b'"', b"\t", b"\n", b"\r\n", b",", b"\0", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"{", b"[" * 2000, b"]",
    b"9" * 5000, b"1e999", b"-Infinity", b"NaN", b"\\ud800", b"__label__", b"::", b"sep=;\n", b"\xc3\xa9",
)  # fmt: skip
ENCODINGS = (
    "auto",
    "auto",
    "auto",
    "utf-8",
    "latin-1",
    "utf-16",
    "cp949",
    "utf-8:replace",
    "shift_jis",
    "cp037",
)


@cache
def valid_files() -> Mapping[str, bytes]:
    """Return the content of a valid file by name; the name tells the reader."""
    plain = [(row["text"].replace("\t", " "), row["label"]) for row in ROWS]
    csv = "text,label\n" + "".join(f'"{t.replace(chr(34), chr(34) * 2)}",{y}\n' for t, y in plain)
    files = {
        "a.csv": csv.encode(),
        "a.tsv": ("text\tlabel\n" + "".join(f"{t}\t{y}\n" for t, y in plain)).encode(),
        "quoted.tsv": csv.replace('",', '"\t').replace("text,", "text\t").encode(),
        "a.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS).encode(),
        "a.json": json.dumps({"version": 1, "data": ROWS}, ensure_ascii=False).encode(),
        "columns.json": json.dumps({k: [row[k] for row in ROWS] for k in ROWS[0]}).encode("utf-16"),
        "label_text.txt": "".join(f"{y} {t}\n" for t, y in plain).encode("cp1252", "replace"),
        "text_label.txt": "".join(f"{t}\t{y}\n" for t, y in plain).encode(),
        "a.ft": "".join(f"__label__{y} {t}\n" for t, y in plain).encode(),
    }
    return files | _packed(files["a.csv"]) | _binary()


def _packed(csv: bytes) -> dict[str, bytes]:
    archive, tar = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("a.csv", csv)
    with tarfile.open(fileobj=tar, mode="w:gz") as t:
        info = tarfile.TarInfo("a.csv")
        info.size = len(csv)
        t.addfile(info, io.BytesIO(csv))
    return {
        "a.csv.gz": gzip.compress(csv),
        "a.csv.bz2": bz2.compress(csv),
        "a.csv.xz": lzma.compress(csv),
        "a.zip": archive.getvalue(),
        "a.tar.gz": tar.getvalue(),
        "plain.tar": gzip.decompress(tar.getvalue()),
    }


def _binary() -> dict[str, bytes]:
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.Table.from_pylist([row | {"id": i, "x": [0.5]} for i, row in enumerate(ROWS)])
    out, stream = io.BytesIO(), io.BytesIO()
    parquet.write_table(table, out)
    with pyarrow.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return {"a.parquet": out.getvalue(), "a.arrow": stream.getvalue()}


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return ``data`` with one to eight changes: flipped, removed, repeated or inserted bytes."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(5)
        if kind == 0 and at < len(out):
            out[at] = rng.randrange(256)
        elif kind == 1:
            out[at:at] = rng.choice(SPECIAL)
        elif kind == 2:
            del out[at : at + rng.randint(1, 40)]
        elif kind == 3:
            out[at:at] = out[at : at + rng.randint(1, 60)]
        elif kind == 4 and rng.random() < 0.2:
            del out[at:]
    return bytes(out)


def read_or_refuse(name: str, data: bytes, folder: Path, rng: random.Random) -> bool:
    """Read a file and all values of its table; return False if it is refused with a HarnessError."""
    path = folder / name
    path.write_bytes(data)
    quoting, columns = rng.choice((None, None, True, False)), rng.choice((None, None, ["text", "label"]))
    how = ReadOptions(encoding=rng.choice(ENCODINGS), quoting=quoting, columns=columns)
    try:
        table = read_table(path, how, log=ReadLog(on_error=rng.choice(("raise", "skip"))))
        lengths = {len(list(values)) for values in table.data.values()} | {len(table)}
    except HarnessError as e:
        if len(str(e)) > 2000:
            raise AssertionError("the message repeats the file") from e
        return False
    assert len(lengths) == 1 or not table.data
    for values in table.data.values():
        repr(list(values)).encode("utf-8")
    return True


def fuzz(name: str, executions: int, *, seed: int) -> int:
    """Read ``executions`` changed copies of a valid file; return how many were read."""
    rng = random.Random(seed)
    data = valid_files()[name]
    read = 0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(executions):
            read += read_or_refuse(name, mutate(data, rng), Path(folder), rng)
    return read
