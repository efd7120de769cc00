"""API key of and connection to the wandb server, without importing wandb, which prompts for a key."""

from __future__ import annotations

import netrc
import os
import socket
from urllib.parse import urlsplit

REACH_SECONDS = 5.0
PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")


def server() -> tuple[str, int]:
    """Host and port of $WANDB_BASE_URL, by default those of the public server."""
    base = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai")
    return base.hostname or "", base.port or (80 if base.scheme == "http" else 443)


def has_api_key(host: str) -> bool:
    """Whether there is a key for ``host`` in the environment or in a netrc file (from ``wandb login``)."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    files = [os.environ["NETRC"]] if os.environ.get("NETRC") else ["~/.netrc", "~/_netrc"]
    for name in files:
        try:
            if netrc.netrc(os.path.expanduser(name)).authenticators(host):
                return True
        except (OSError, netrc.NetrcParseError):
            continue
    return False


def why_unreachable(host: str, port: int) -> str:
    """Why no connection is possible; "" if it is, or if a proxy is configured, through which it may be."""
    if any(os.environ.get(name) for proxy in PROXIES for name in (proxy, proxy.lower())):
        return ""
    try:
        socket.create_connection((host, port), timeout=REACH_SECONDS).close()
    except OSError as e:
        return str(e)
    return ""
