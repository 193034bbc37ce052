"""Addresses of servers: what they may contain, and which of them may get the user's key."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from levelhead.core.errors import LevelheadError

LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
"""Hosts whose requests never leave this machine."""
KEY_VARIABLE = "LEVELHEAD_KEY"
"""Environment variable with a server's key: other users can read a command line, not this."""
HOSTS_VARIABLE = "LEVELHEAD_KEY_HOSTS"
"""Environment variable with the hosts, separated by commas, to which a file may send the key."""
_ADDRESS = re.compile(r"https?://[^\s\"'<>#]+")
ADDRESS_HINT = "give an address such as http://127.0.0.1:8080"


def check_address(url: str, key: str | None) -> None:
    """Raise an error for an address that is none, holds a secret, or would betray the key.

    Args:
        url: the address, which is a part of results.
        key: key that would be sent to it.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    # Not quoted: where there is no port, there may be half a password.
    except ValueError:
        raise LevelheadError("the server's address cannot be read", hint=ADDRESS_HINT) from None
    if parts.username is not None or parts.password is not None:
        raise LevelheadError(
            "the server's address contains a name or a password",
            hint=f"give a key instead: {KEY_VARIABLE}, or HttpModel(url, key=...)",
        )
    if parts.query:
        # Not quoted: what follows a question mark is most often a key.
        raise LevelheadError(
            f"the address of {host} contains a query, behind its question mark",
            hint=f"leave it out; a key is given as {KEY_VARIABLE}, or HttpModel(url, key=...)",
        )
    if parts.scheme not in ("http", "https") or not host:
        raise LevelheadError(f"{url!r} is not the address of a server", hint=ADDRESS_HINT)
    # Unencrypted requests to this machine never leave it; a key may be sent to a local server.
    if key and parts.scheme == "http" and host not in LOCAL_HOSTS:
        raise LevelheadError(
            "a key would be sent unencrypted", hint="use https, or a server on this machine"
        )
    # The client would show such a key in its error.
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise LevelheadError(
            "the key has characters that a header cannot have", hint="remove line breaks"
        )


def check_key_hosts(text: str, source: str) -> None:
    """Raise an error if a file names a server that would get the key of the environment.

    A study or a list of models may come from anybody: whoever wrote it must not choose who gets the
    key. An address on the command line is the choice of the user.

    Args:
        text: content of the file.
        source: what the file is, for the error.
    """
    if not os.environ.get(KEY_VARIABLE):
        return
    allowed = {host.strip() for host in os.environ.get(HOSTS_VARIABLE, "").split(",")}
    for address in _ADDRESS.findall(text):
        host = _find_host(address)
        if host not in allowed and host not in LOCAL_HOSTS:
            raise LevelheadError(
                f"{source} names the server {host}, which would get the key of {KEY_VARIABLE}",
                hint=f"export {HOSTS_VARIABLE}={host} if the key is for this server, or unset "
                f"{KEY_VARIABLE}",
            )


def _find_host(address: str) -> str:
    try:
        return urlsplit(address).hostname or address
    except ValueError:
        return address
