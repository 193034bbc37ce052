"""The plan of an audit in its folder: made once, and followed by every run that resumes it."""

from __future__ import annotations

import json
from pathlib import Path

from levelhead.core.canonical_json import content_hash, to_canonical_json
from levelhead.core.errors import LevelheadError
from levelhead.core.files import write_atomic
from levelhead.engine.run_dir import mark_owned
from levelhead.study.audit.audit import Audit
from levelhead.study.results_dir import AUDIT_FILE, OWNED_FILES

STUDY_FILE = "study.json"
PLAN_HASH = "plan_hash"
"""Field of `audit.json` with the hash of all its other fields."""


def read_audit(folder: str | Path) -> Audit:
    """Read the audit of a folder."""
    path = Path(folder) / AUDIT_FILE
    try:
        document = json.loads(path.read_bytes())
        plan_hash = document.pop(PLAN_HASH, None)
        audit = Audit.from_json(to_canonical_json(document))
    except FileNotFoundError:
        raise LevelheadError(
            f"{folder} contains no audit", hint="name the folder that `levelhead audit` wrote"
        ) from None
    except (ValueError, AttributeError, TypeError, LevelheadError):
        raise LevelheadError(
            f"{path} cannot be read", hint="audit the model again, into another folder"
        ) from None
    # A report would otherwise show a plan that was never run as the plan of these results.
    if plan_hash != content_hash(document):
        raise LevelheadError(
            f"{path} was changed after the audit was planned",
            hint="restore the file, or audit the model again, into another folder",
        )
    return audit


def load_matching_audit(folder: Path, request_hash: str) -> Audit | None:
    """Read the audit of a folder if its request matches; raise an error if it does not.

    A different budget still matches, because the core suite is the same.

    Args:
        folder: folder of the audit.
        request_hash: hash from `compute_request_hash`.
    """
    if not (folder / AUDIT_FILE).exists():
        return None
    audit = read_audit(folder)
    if audit.request_hash != request_hash:
        raise LevelheadError(
            f"{folder} contains another audit: {audit.model_summary}",
            hint="name another folder; to resume that audit, give the same model and options",
        )
    return audit


def save_audit(audit: Audit, folder: Path) -> None:
    """Write an audit's plan into its folder, also as a study for `levelhead study`.

    Args:
        audit: the complete plan.
        folder: folder of the audit.
    """
    mark_owned(folder, (AUDIT_FILE, STUDY_FILE, *OWNED_FILES))
    write_atomic(str(folder / STUDY_FILE), audit.study_config.to_json().encode() + b"\n")
    document = audit.model_dump()
    sealed = document | {PLAN_HASH: content_hash(document)}
    # Last: a folder with this file counts as planned, so the study must be there.
    write_atomic(str(folder / AUDIT_FILE), to_canonical_json(sealed) + b"\n")
