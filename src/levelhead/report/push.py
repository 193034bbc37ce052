"""Write an audit into the model card of a repository on the Hugging Face Hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

from levelhead.core.errors import LevelheadError
from levelhead.report.model_card_section import update_readme

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.core.results import Record
    from levelhead.study.audit.audit import Audit

README = "README.md"


def push_to_model_card(repo: str, audit: Audit, results: Mapping[str, Record]) -> str:
    """Propose an audit for a model card, as a pull request; return the pull request's address.

    The section between levelhead's marks and the evaluation results of the metadata are replaced;
    all other content stays. A pull request, because the card belongs to the model's authors.

    Args:
        repo: Repository of a model, such as `organisation/model`.
        audit: Plan of the audit.
        results: Results by step.
    """
    api = HfApi(library_name="levelhead")
    try:
        info = api.model_info(repo)
        try:
            path = hf_hub_download(repo, README, revision=info.sha, library_name="levelhead")
            with open(path, encoding="utf-8", newline="") as file:
                readme = file.read()
        except EntryNotFoundError:
            readme = ""
        commit = api.upload_file(
            path_or_fileobj=update_readme(
                readme, audit, results, name=repo.rpartition("/")[2]
            ).encode(),
            path_in_repo=README,
            repo_id=repo,
            commit_message="Add a levelhead audit",
            # The card may have changed since it was read: the Hub then refuses.
            parent_commit=info.sha,
            create_pr=True,
        )
    except UnicodeDecodeError:
        raise LevelheadError(f"the README of {repo} is not UTF-8 text", hint="save it so") from None
    except (HfHubHTTPError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise LevelheadError(
            f"the Hub did not take the model card of {repo}: {reason:.200}",
            hint="log in with `hf auth login`, check the repository's name, then push again",
        ) from None
    return str(commit.pr_url or commit.commit_url)
