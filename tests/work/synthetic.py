"""Functions that tests hand to runners: workers import them by name."""

import ctypes
import hashlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from levelhead.core.canonical_json import to_canonical_json
from levelhead.core.errors import LevelheadError


def digest(spec: Mapping[str, object]) -> bytes:
    """Deterministic bytes of a given length; each call leaves a line in a log."""
    if spec.get("log"):
        line = to_canonical_json([os.environ.get("RUN", "0"), spec["i"]]) + b"\n"
        descriptor = os.open(str(spec["log"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, line)  # one write of a short line is whole, whoever else appends
        os.close(descriptor)
    time.sleep(float(str(spec.get("seconds", 0))))
    seed = hashlib.sha256(to_canonical_json(spec["i"])).digest()
    return (seed * (int(str(spec.get("bytes", 32))) // 32 + 1))[: int(str(spec.get("bytes", 32)))]


def refuse(spec: Mapping[str, object]) -> bytes:
    raise LevelheadError(f"no answer to {spec['i']}", hint="ask another question")


def stumble(spec: Mapping[str, object]) -> bytes:
    raise ZeroDivisionError("a plain mistake")


def die(spec: Mapping[str, object]) -> bytes:
    """Kill the own process until `times` deaths are on record."""
    record = Path(str(spec["record"]))
    deaths = record.stat().st_size if record.exists() else 0
    if deaths < int(str(spec["times"])):
        with record.open("ab") as file:
            file.write(b".")
        os.kill(os.getpid(), signal.SIGKILL)
    return b"alive"


def leave(spec: Mapping[str, object]) -> bytes:
    sys.exit(0)


def die_of(spec: Mapping[str, object]) -> bytes:
    """Die of a given signal, leaving behind a child that keeps every inherited pipe open."""
    if spec.get("child") and os.fork() == 0:
        time.sleep(20)
        os._exit(0)
    os.kill(os.getpid(), int(str(spec["signal"])))
    time.sleep(20)
    return b""


def hold_the_interpreter(spec: Mapping[str, object]) -> bytes:
    """Sleep in C without releasing the interpreter's lock: no other thread runs meanwhile."""
    ctypes.PyDLL(None).sleep(int(str(spec["seconds"])))
    return b""


def spin(spec: Mapping[str, object]) -> bytes:
    """Compute in Python without a pause."""
    until = time.monotonic() + float(str(spec["seconds"]))
    while time.monotonic() < until:
        hashlib.sha256(b"busy").digest()
    return b""


def wander(spec: Mapping[str, object]) -> bytes:
    os.chdir(str(spec["to"]))
    return b"elsewhere"


def not_bytes(spec: Mapping[str, object]) -> str:
    return "text"


def where(spec: Mapping[str, object]) -> bytes:
    """The process that computes it, after a moment in which others can be found."""
    time.sleep(0.3)
    return str(os.getpid()).encode()


def variables(spec: Mapping[str, object]) -> bytes:
    """What a worker is told of ours."""
    mine = ("LEVELHEAD_KEY", "LEVELHEAD_DATA")
    return to_canonical_json({name: os.environ[name] for name in mine if name in os.environ})
