"""One pretraining from its configuration to a finished folder, or none; torch-free until it trains.

What is half done lies beside the output in ``.<output>.unfinished``: checkpoints, curves and what identifies
the run. The same command continues from there; another one is refused. The output appears whole, by
renaming.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.core.files import write_atomic
from harness.core.fingerprint import data_fingerprint, file_fingerprint
from harness.core.instantiate import locate, refuse_unknown
from harness.core.provenance import git_state, host, versions
from harness.errors import HarnessError
from harness.pretraining.base import Objective, Outcome, Pretrainer, Progress, Run
from harness.pretraining.checkpoint_files import states_in
from harness.pretraining.config import budget, options, work_folder
from harness.pretraining.half_precision import halve
from harness.pretraining.loggers import about, check_log, keep_wandb
from harness.pretraining.text.corpus import Corpus, read_corpus
from harness.pretraining.text.shared_tokenizer import tokenizer_file
from harness.records.lease import Leases

RECORD, IDENTITY = "pretrain.json", "identity"
SCHEMA = 1
BEYOND = "it is beyond what a number holds: the training diverged; lower encoder.recipe.lr"
UNIMPORTANT = ("output", "overwrite", "corpus", "encoding", "column", "split")
"""Keys that say where things lie; what is read decides."""


def run_job(config: Mapping[str, Any], *, say: Progress, command: str = "") -> dict[str, Any]:
    """Pretrain as a checked configuration says, and return the record.

    Args:
        config: from :func:`harness.pretraining.config.checked`.
        say: shows lines of progress.
        command: what was called, for the record.

    Raises:
        HarnessError: the output is something else, another process makes it, or data or options do not do.
    """
    output = Path(config["output"]).expanduser().absolute()
    corpus = read_corpus(
        config["corpus"],
        held_out=config["held_out"],
        encoding=config["encoding"],
        column=config["column"],
        split=config["split"],
    )
    for note in corpus.notes:
        say(note)
    identity = job_identity(config, corpus)
    if output.is_symlink() and not output.exists():
        raise HarnessError(f"output={output}: is a link to nothing; remove it, or name another folder")
    output = output.resolve()
    work = work_folder(output)
    overwrite = config["overwrite"] == "always"
    there = finished(output, identity, overwrite=overwrite)
    if there is not None:
        _clean_up(work, output, identity)
        say(f"{output} is complete already; overwrite=always makes it anew")
        return there
    pretrainer = the_pretrainer(config["encoder"])
    check_log(config["trainer"])
    with _written(output), _lease(work):
        _clear(work, identity, overwrite=overwrite)
        folder = work / "result"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        begin = time.perf_counter()
        told = about(config, identity=identity, corpus=corpus.fingerprint)
        run = Run(corpus, budget(config), folder, work, config["seed"], config["trainer"], say, about=told)
        outcome = _trained(pretrainer, run, config)
        if config["half"] and not halve(folder):
            outcome.notes.append("half=true: this format has no half precision; the files are as without it")
            say(outcome.notes[-1])
        record = the_record(config, corpus, outcome, identity=identity, command=command)
        record["loads_as"] = pretrainer.family
        if isinstance(pretrainer, Objective):
            record["options"]["recipe"] = asdict(pretrainer.recipe)  # with what was left to its defaults
        record["total_seconds"] = time.perf_counter() - begin
        record["files"] = {p.name: file_fingerprint(p) for p in sorted(folder.iterdir()) if p.is_file()}
        _keep_curves(work, folder)
        keep_wandb(work, folder)
        write_atomic(folder / RECORD, json.dumps(record, indent=1, ensure_ascii=False).encode())
        _publish(folder, output)
        _empty(work)
    _remove(work)
    return record


def _trained(pretrainer: Pretrainer, run: Run, config: Mapping[str, Any]) -> Outcome:
    """Trained in this process, or over several ranks.

    Raises:
        HarnessError: it cannot be trained over several.
    """
    devices, name = config["trainer"]["devices"], config["encoder"]["name"]
    if devices == 1:
        return pretrainer.pretrain(run)
    if not isinstance(pretrainer, Objective):
        raise HarnessError(
            f"trainer.devices={devices}: encoder={name} is not trained by gradients that could be "
            "summed over them; give trainer.devices=1"
        )
    from harness.pretraining.distributed import RankedJob, pretrain_on_ranks

    return pretrain_on_ranks(
        RankedJob(dict(config), run.work, run.corpus, run.folder, run.about), say=run.say
    )


def the_pretrainer(encoder: Mapping[str, Any]) -> Pretrainer:
    """Built from its options.

    Raises:
        HarnessError: an option it does not know or cannot use.
    """
    target, given = locate(encoder["_target_"]), options(encoder)
    refuse_unknown(target, given, where=f"encoder={encoder['name']}")
    built: Pretrainer = target(**given)
    return built


def job_identity(config: Mapping[str, Any], corpus: Corpus) -> str:
    """Hex digest of everything that decides what comes out."""
    told = {k: v for k, v in config.items() if k not in (*UNIMPORTANT, "trainer")}
    if config["encoder"].get("tokenizer") is not None:
        file = tokenizer_file(config["encoder"]["tokenizer"])
        told["encoder"] = {**config["encoder"], "tokenizer": file_fingerprint(file)}
    if isinstance(told["held_out"], str):  # a text, which is in the corpus' fingerprint
        del told["held_out"]
    told["precision"] = config["trainer"]["precision"]
    return data_fingerprint([told, corpus.fingerprint])


def finished(output: Path, identity: str, *, overwrite: bool) -> dict[str, Any] | None:
    """The record of an output that is complete and of this run.

    Raises:
        HarnessError: something else lies there.
    """
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return None
    try:
        record = json.loads((output / RECORD).read_text(encoding="utf-8"))
        found = record["identity"]
    except (OSError, ValueError, KeyError, TypeError):
        raise HarnessError(
            f"output={output}: is there already and was not made by harness pretrain; name another folder"
        ) from None
    if overwrite:
        return None
    for name, digest in dict(record.get("files") or {}).items():
        if not (output / name).is_file() or file_fingerprint(output / name) != digest:
            raise HarnessError(
                f"output={output}: {name} is missing or not what was written; overwrite=always makes it anew"
            )
    if found != identity:
        raise HarnessError(
            f"output={output}: holds an encoder of other options, data or budget; name another folder, or "
            "overwrite=always"
        )
    return dict(record)


def the_record(
    config: Mapping[str, Any], corpus: Corpus, outcome: Outcome, *, identity: str, command: str
) -> dict[str, Any]:
    """What ``pretrain.json`` says. Numbers that are none are null."""
    encoder = config["encoder"]
    held = outcome.held_out
    return {
        "schema": SCHEMA,
        "family": encoder["name"],
        "size": encoder["size"],
        "seed": config["seed"],
        "identity": identity,
        "corpus": {
            "name": Path(config["corpus"]).name,
            "fingerprint": corpus.fingerprint,
            "documents": len(corpus.train),
            "words": corpus.words(),
            "held_out_documents": len(corpus.held_out),
            "held_out_words": corpus.words(held_out=True),
            "unigram_perplexity": corpus.unigram_perplexity(),
        },
        "seen": asdict(outcome.seen) | {"epochs": outcome.epochs},
        "parameters": outcome.parameters,
        "encoder_parameters": outcome.encoder_parameters,
        "vocabulary": outcome.vocabulary,
        "loss": _number(outcome.loss),
        "held_out": None
        if held is None
        else {
            "perplexity_per_word": None if held.word_perplexity is None else _number(held.word_perplexity),
            "perplexity_per_token": _number(held.token_perplexity) if held.words is not None else None,
            "undefined": held.why or (BEYOND if held.word_perplexity == math.inf else None),
            "nll": held.nll if held.predicted else None,
            "unigram_nll": _number(held.unigram),
            "words": held.words,
            "tokens": held.predicted,
            "unknown_share": held.unknown,
            **{k: _number(v) for k, v in held.more.items()},
        },
        "notes": [*corpus.notes, *outcome.notes],
        "options": {k: v for k, v in encoder.items() if k not in ("name", "_target_")},
        "budget": config["budget"],
        "precision": config["trainer"]["precision"],
        "half": config["half"],
        "devices": config["trainer"]["devices"],
        "versions": versions(),
        "git": git_state(),
        "host": host(),
        "command": command,
    }


def _number(value: float) -> float | None:
    return value if value == value and abs(value) != float("inf") else None


@contextlib.contextmanager
def _written(output: Path) -> Iterator[None]:
    """What the system refuses of the output, or of what lies beside it, is said in one line."""
    try:
        yield
    except OSError as e:
        what = f"{e.strerror}: {e.filename}" if e.filename else str(e.strerror or e)
        raise HarnessError(
            f"output={output}: cannot be written ({what}). What is done stays beside it; when this is mended "
            "the same command goes on from there"
        ) from e


@contextlib.contextmanager
def _lease(work: Path) -> Iterator[None]:
    lease = Leases().take(work)
    if lease is None:
        raise HarnessError(f"{work}: another process is making this output; wait for it, or end it")
    try:
        yield
    finally:
        lease.release()


def _clear(work: Path, identity: str, *, overwrite: bool) -> None:
    """What this command left stays; what another one left goes, if that is wanted.

    Raises:
        HarnessError: it is not, and there is something to lose.
    """
    mark = work / IDENTITY
    if mark.is_file() and mark.read_text() == identity:
        return
    if (states := states_in(work)) and not overwrite:
        raise HarnessError(
            f"{work}: holds an unfinished training of this output with other options, data or budget, up to "
            f"{states[-1].name}; the command that began it goes on from there, overwrite=always begins anew, "
            "and so does another output="
        )
    _empty(work)
    write_atomic(mark, identity.encode())


def _empty(work: Path) -> None:
    """All goes but the lease, and what says whose it is goes last."""
    for path in sorted(work.iterdir(), key=lambda p: p.name == IDENTITY):
        if path.name.startswith(".lease"):
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _remove(work: Path) -> None:
    with contextlib.suppress(OSError):  # someone else has begun there
        work.rmdir()


def _clean_up(work: Path, output: Path, identity: str) -> None:
    """What a run left that was killed between publishing and tidying up."""
    shutil.rmtree(_old(output), ignore_errors=True)
    mark = work / IDENTITY
    if not work.is_dir() or (mark.is_file() and mark.read_text() != identity):
        return
    lease = Leases().take(work)
    if lease is not None:
        _empty(work)
        lease.release()
        _remove(work)


def _keep_curves(work: Path, folder: Path) -> None:
    """The curves of all parts of the run as one ``curves.csv``."""
    parts = sorted(work.glob("log/part-*/metrics.csv"), key=lambda p: int(p.parent.name.rpartition("-")[2]))
    lines: list[str] = []
    for part in parts:
        head, *rows = part.read_text().splitlines() or [""]
        lines += [head, *rows] if not lines or lines[0] != head else rows
    if lines:
        write_atomic(folder / "curves.csv", "\n".join([*lines, ""]).encode())


def _publish(folder: Path, output: Path) -> None:
    """The finished folder under its name; what was there goes last."""
    umask = os.umask(0)
    os.umask(umask)
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(0o666 & ~umask)  # some libraries write for the owner alone
            with path.open("rb") as f:
                os.fsync(f.fileno())
    old = _old(output)
    shutil.rmtree(old, ignore_errors=True)
    if output.exists():
        output.rename(old)
    folder.rename(output)
    shutil.rmtree(old, ignore_errors=True)


def _old(output: Path) -> Path:
    """Where what lies at the output is put while it is replaced."""
    return output.parent / f".{output.name}.old"
