"""Load an encoder by its configuration's name, for use outside a cell."""

from __future__ import annotations

import os
from pathlib import Path

from harness.core.paths import cache_folder, conf_dir
from harness.encoders.base import Encoder
from harness.encoders.config import EncoderConfig
from harness.errors import HarnessError, did_you_mean


def load_encoder(
    name: str,
    path: str | os.PathLike[str] | None = None,
    *,
    random_init: bool = False,
    stateful: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    config_dir: str | os.PathLike[str] | None = None,
    **options: object,
) -> Encoder:
    """Load an encoder by the name of its configuration, in eval mode.

    Args:
        name: an encoder's YAML without the extension, as in ``harness list``.
        path: local file or folder; None = as in the YAML, downloaded if it names a URL.
        random_init: the same architecture with random weights from torch's global generator.
        stateful: row k of a batch starts from the final state of row k of the previous batch, as in the
            original ELMo; :meth:`~harness.encoders.base.Encoder.encode` then keeps the order of the
            sentences.
        cache_dir: for tables and downloads; None = $HARNESS_CACHE or the user's cache.
        config_dir: your own folder whose ``encoder/`` contains additional YAMLs.
        options: override keys of the YAML.

    Raises:
        HarnessError: unknown name or option, or unavailable files.
    """
    values = {**encoder_config(name, config_dir=config_dir), **options}
    if path is not None:
        values["path"] = os.fspath(path)
    config = EncoderConfig.parse(values)
    cache = cache_folder(None if cache_dir is None else os.fspath(cache_dir))
    config.files(cache)  # missing files are reported before anything is loaded
    encoder = config.build(random_init=random_init, cache_dir=cache)
    if stateful:
        if encoder.stateful is None:
            raise HarnessError(f"encoder {name}: stateful=True: this encoder has no state between batches")
        encoder.stateful = True
    return encoder.eval()


def encoder_config(name: str, *, config_dir: str | os.PathLike[str] | None = None) -> dict[str, object]:
    """Return the composed YAML of an encoder as plain data.

    Raises:
        HarnessError: unknown name, or a YAML that cannot be composed.
    """
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from harness.core.resolvers import register

    register()
    folders = [conf_dir(), *([] if config_dir is None else [Path(config_dir).expanduser().absolute()])]
    names = {p.stem for folder in folders for p in (folder / "encoder").glob("*.yaml")}
    if name not in names:
        hint = (
            f'; pass a checkpoint folder as path: load_encoder("bert", path={name!r})' if "/" in name else ""
        )
        raise HarnessError(f"encoder {name}: no such configuration, {did_you_mean(name, names)}{hint}")
    search = [f"hydra.searchpath=['file://{folders[-1]}']"] if config_dir is not None else []
    try:
        with initialize_config_dir(str(folders[0]), version_base="1.3"):
            composed = compose(None, overrides=[f"+encoder={name}", *search])
        data = OmegaConf.to_container(composed.encoder, resolve=True)
    except (HydraException, OmegaConfBaseException) as e:
        raise HarnessError(f"encoder {name}: {e}") from e
    return {str(k): v for k, v in data.items()} if isinstance(data, dict) else {}
