"""One pretraining run, from its configuration to a published folder; torch-free until training starts.

An unfinished run lies beside its output in ``.<output>.unfinished``: checkpoints, curves and the run's
identity. The same command resumes it; another command is refused. The output is published by renaming, so it
is complete or absent.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TypeAlias

from harness.core.files import fsync, write_atomic
from harness.core.fingerprint import data_fingerprint, file_fingerprint
from harness.core.provenance import git_state, host, versions
from harness.errors import HarnessError
from harness.pretraining.base import EvalResult, Objective, Outcome, ReportLine, Run
from harness.pretraining.checkpoint_files import checkpoints_in
from harness.pretraining.config import PretrainConfig, build_budget, work_folder
from harness.pretraining.factories import AnyPretrainer, build_pretrainer
from harness.pretraining.half_precision import halve
from harness.pretraining.loggers import check_logger, keep_logs, log_info
from harness.pretraining.text.corpus import Corpus, read_corpus
from harness.pretraining.text.shared_tokenizer import tokenizer_file
from harness.records.lease import Leases

RECORD, IDENTITY = "pretrain.json", "identity"
SCHEMA = 1
OVERFLOW = "the perplexity overflows: training diverged; lower encoder.recipe.lr"
LOCATIONS = ("output", "overwrite", "corpus", "encoding", "column", "split")
"""Keys that are not part of a run's identity: they say where things are; the text itself counts."""
PretrainRecord: TypeAlias = dict[str, object]
"""Content of ``pretrain.json``, see :func:`build_record`."""


def run_job(config: PretrainConfig, *, report: ReportLine, command: str = "") -> PretrainRecord:
    """Pretrain according to a validated configuration and return the record.

    Args:
        config: from :func:`harness.pretraining.config.validate_config`.
        report: shows lines of progress.
        command: the command line, for the record.

    Raises:
        HarnessError: the output is something else, another process writes it, or data or options are invalid.
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
        report(note)
    identity = run_identity(config, corpus)
    if output.is_symlink() and not output.exists():
        raise HarnessError(f"output={output}: broken symbolic link; remove it or choose another folder")
    output = output.resolve()
    work = work_folder(output)
    overwrite = config["overwrite"] == "always"
    existing = load_finished(output, identity, overwrite=overwrite)
    if existing is not None:
        _clean_up(work, output, identity)
        report(f"{output} is already complete; set overwrite=always to train it again")
        return existing
    pretrainer = build_pretrainer(config["encoder"])
    check_logger(config["trainer"])
    with _output_errors(output), _lease(work):
        _claim(work, identity, overwrite=overwrite)
        folder = work / "result"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        run = Run(
            corpus=corpus,
            budget=build_budget(config),
            folder=folder,
            work=work,
            seed=config["seed"],
            trainer=config["trainer"],
            report=report,
            log_info=log_info(config, identity=identity, corpus=corpus.fingerprint),
        )
        record = _train_into(run, pretrainer, config, identity=identity, command=command)
        _publish(folder, output)
        _empty(work)
    _remove(work)
    return record


def _train_into(
    run: Run, pretrainer: AnyPretrainer, config: PretrainConfig, *, identity: str, command: str
) -> PretrainRecord:
    """Train, and write the encoder, the curves and the record to ``run.folder``."""
    begin = time.perf_counter()
    outcome = _train(pretrainer, run, config)
    if config["half_precision"] and not halve(run.folder):
        outcome.notes.append("half_precision=true: has no effect on this format")
        run.report(outcome.notes[-1])
    record = build_record(config, run.corpus, outcome, identity=identity, command=command)
    record["loads_as"] = pretrainer.family
    if isinstance(pretrainer, Objective):
        # with the hyperparameters that were left to their defaults
        record["options"] = {**_options(config), "recipe": asdict(pretrainer.recipe)}
    record["total_seconds"] = time.perf_counter() - begin
    record["files"] = {p.name: file_fingerprint(p) for p in sorted(run.folder.iterdir()) if p.is_file()}
    keep_logs(run.work, run.folder)
    write_atomic(run.folder / RECORD, json.dumps(record, indent=1, ensure_ascii=False).encode())
    return record


def _train(pretrainer: AnyPretrainer, run: Run, config: PretrainConfig) -> Outcome:
    """Train in this process or on several ranks.

    Raises:
        HarnessError: this family cannot be trained on several devices.
    """
    devices, name = config["trainer"]["devices"], config["encoder"]["name"]
    if devices == 1:
        if not isinstance(pretrainer, Objective):
            return pretrainer.pretrain(run)
        from harness.pretraining.trainer import train

        return train(pretrainer, run)
    if not isinstance(pretrainer, Objective):
        raise HarnessError(
            f"trainer.devices={devices}: encoder={name} is not trained by gradients that can be summed over "
            "devices; set trainer.devices=1"
        )
    from harness.pretraining.ranks import RankedRun, pretrain_on_ranks

    ranked = RankedRun(config, run.work, run.corpus, run.folder, run.log_info)
    return pretrain_on_ranks(ranked, report=run.report)


def run_identity(config: PretrainConfig, corpus: Corpus) -> str:
    """Hex digest of everything that determines the result."""
    parts: dict[str, object] = {k: v for k, v in config.items() if k not in (*LOCATIONS, "trainer")}
    shared = config["encoder"].get("tokenizer")
    if shared is not None:
        # the tokenizer's content, not its path
        digest = file_fingerprint(tokenizer_file(str(shared)))
        parts["encoder"] = {**config["encoder"], "tokenizer": digest}
    if isinstance(config["held_out"], str):  # a text; it is part of the corpus' fingerprint
        del parts["held_out"]
    parts["precision"] = config["trainer"]["precision"]
    return data_fingerprint([parts, corpus.fingerprint])


def load_finished(output: Path, identity: str, *, overwrite: bool) -> PretrainRecord | None:
    """Return the record of an output that this run has already completed; None if there is no output.

    Raises:
        HarnessError: the folder holds something else.
    """
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return None
    try:
        record = json.loads((output / RECORD).read_text(encoding="utf-8"))
        found_identity = record["identity"]
    except (OSError, ValueError, KeyError, TypeError):
        raise HarnessError(
            f"output={output}: exists and was not made by harness pretrain; choose another folder"
        ) from None
    if overwrite:
        return None
    for name, digest in dict(record.get("files") or {}).items():
        if not (output / name).is_file() or file_fingerprint(output / name) != digest:
            raise HarnessError(
                f"output={output}: {name} is missing or has changed; set overwrite=always to train it again"
            )
    if found_identity != identity:
        raise HarnessError(
            f"output={output}: holds an encoder with other options, data or budget; choose another folder or "
            "set overwrite=always"
        )
    return dict(record)


def build_record(
    config: PretrainConfig, corpus: Corpus, outcome: Outcome, *, identity: str, command: str
) -> PretrainRecord:
    """Content of ``pretrain.json``; NaN and infinity become null."""
    return {
        "schema": SCHEMA,
        "family": config["encoder"]["name"],
        "size": config["encoder"]["size"],
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
        "seen": asdict(outcome.progress) | {"epochs": outcome.epochs},
        "parameters": outcome.parameters,
        "encoder_parameters": outcome.encoder_parameters,
        "vocabulary": outcome.vocabulary,
        "loss": _finite(outcome.loss),
        "held_out": None if outcome.held_out is None else _held_out_section(outcome.held_out),
        "notes": [*corpus.notes, *outcome.notes],
        "options": _options(config),
        "budget": config["budget"],
        "precision": config["trainer"]["precision"],
        "half_precision": config["half_precision"],
        "devices": config["trainer"]["devices"],
        "versions": versions(),
        "git": git_state(),
        "host": host(),
        "command": command,
    }


def _options(config: PretrainConfig) -> dict[str, object]:
    return {k: v for k, v in config["encoder"].items() if k not in ("name", "_target_")}


def _held_out_section(result: EvalResult) -> dict[str, object]:
    return {
        "perplexity_per_word": _finite(result.word_perplexity),
        "perplexity_per_token": _finite(result.token_perplexity) if result.words is not None else None,
        "undefined": result.reason or (OVERFLOW if result.word_perplexity == math.inf else None),
        "nll": result.nll if result.predicted else None,
        "unigram_nll": _finite(result.unigram_nll),
        "words": result.words,
        "tokens": result.predicted,
        "unknown_share": result.unknown_rate,
        **{k: _finite(v) for k, v in result.metrics.items()},
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


@contextlib.contextmanager
def _output_errors(output: Path) -> Iterator[None]:
    """Turn errors of the file system into one line."""
    try:
        yield
    except OSError as e:
        cause = f"{e.strerror}: {e.filename}" if e.filename else str(e.strerror or e)
        raise HarnessError(
            f"output={output}: cannot be written ({cause}). The unfinished run is kept beside it; run the "
            "same command again to resume once this is fixed"
        ) from e


@contextlib.contextmanager
def _lease(work: Path) -> Iterator[None]:
    lease = Leases().take(work)
    if lease is None:
        raise HarnessError(f"{work}: another process is writing this output; wait for it or stop it")
    try:
        yield
    finally:
        lease.release()


def _claim(work: Path, identity: str, *, overwrite: bool) -> None:
    """Keep what the same run left in the work folder; delete what another run left, if that is allowed.

    Raises:
        HarnessError: it is not allowed, and there are checkpoints to lose.
    """
    mark = work / IDENTITY
    if mark.is_file() and mark.read_text() == identity:
        return
    if (checkpoints := checkpoints_in(work)) and not overwrite:
        raise HarnessError(
            f"{work}: holds an unfinished run of this output with other options, data or budget, up to "
            f"{checkpoints[-1].name}. Run its command to resume it, set overwrite=always to start again, or "
            "choose another output="
        )
    _empty(work)
    write_atomic(mark, identity.encode())


def _empty(work: Path) -> None:
    """Delete everything but the lease; the identity last, so that an interrupted deletion stays claimed."""
    for path in sorted(work.iterdir(), key=lambda p: p.name == IDENTITY):
        if path.name.startswith(".lease"):
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _remove(work: Path) -> None:
    with contextlib.suppress(OSError):  # not empty: another run has started there
        work.rmdir()


def _clean_up(work: Path, output: Path, identity: str) -> None:
    """Delete what a run left that was killed between publishing and cleaning up."""
    shutil.rmtree(_old(output), ignore_errors=True)
    mark = work / IDENTITY
    if not work.is_dir() or (mark.is_file() and mark.read_text() != identity):
        return
    lease = Leases().take(work)
    if lease is not None:
        _empty(work)
        lease.release()
        _remove(work)


def _publish(folder: Path, output: Path) -> None:
    """Rename the finished folder to its final name; delete a previous output last."""
    umask = os.umask(0)
    os.umask(umask)
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(0o666 & ~umask)  # some libraries create files that only the owner can read
            fsync(path)
    old = _old(output)
    shutil.rmtree(old, ignore_errors=True)
    if output.exists():
        output.rename(old)
    folder.rename(output)
    shutil.rmtree(old, ignore_errors=True)


def _old(output: Path) -> Path:
    """Where a previous output is kept while it is replaced."""
    return output.parent / f".{output.name}.old"
