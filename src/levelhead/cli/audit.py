"""`levelhead audit MODEL -o FOLDER`: run every measure that fits a model and write a report."""

from __future__ import annotations

import os
import shlex
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from levelhead.cli.shared.executors import (
    LOCAL,
    Address,
    ExecutorName,
    Gpus,
    Workers,
    make_executor,
)
from levelhead.cli.shared.exit_codes import INCONCLUSIVE, ExitWithCode
from levelhead.cli.shared.help_pages import Panel
from levelhead.cli.shared.options import (
    Against,
    BatchSize,
    CompletionPrice,
    Device,
    DryRun,
    Dtype,
    Edit,
    Items,
    Json,
    MaxCost,
    MaxTokens,
    ModelOrServer,
    PromptPrice,
    Quiet,
    Revision,
    Seed,
)
from levelhead.cli.shared.progress import print_line, show_progress, show_steps
from levelhead.cli.shared.tracking import Log, check_trackers, log_results
from levelhead.core.run_context import Inference, RunContext
from levelhead.models.loading.open_model import open_model

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from levelhead.core.results import Record
    from levelhead.models.lm import LM
    from levelhead.report.audit_page.verdict_text import AuditMeasureVerdict
    from levelhead.study.audit.audit import Audit, AuditSources
    from levelhead.study.distributed import Deadline

NO_BUDGET, BASE = "none", "base"


def audit_command(
    model: ModelOrServer,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            rich_help_panel=Panel.OUTPUT,
            help="Folder for the report and the results; the same command resumes an audit that "
            "is in it.",
        ),
    ],
    edit: Edit = None,
    against: Against = None,
    budget: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            rich_help_panel=Panel.EXECUTION,
            help="Time budget: 30s, 10m, 1h, or none for everything. The core suite always runs "
            "completely; the budget decides what is added to it.",
        ),
    ] = "20m",
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="LEXICON,...",
            rich_help_panel=Panel.MEASURE,
            help="Lexicons whose groups are compared all at once, besides the core suite: "
            "origin-en, or origin-en*gender-en:female+male for two crossed attributes.",
        ),
    ] = None,
    languages: Annotated[
        str | None,
        typer.Option(
            metavar="CODE,...",
            rich_help_panel=Panel.MEASURE,
            help="Languages in which the model is measured, too: fr,es. `levelhead data list "
            "--language fr` shows what there is.",
        ),
    ] = None,
    seed: Seed = 0,
    resamples: Annotated[
        int,
        typer.Option(
            metavar="N",
            rich_help_panel=Panel.STATISTICS,
            help="Number of bootstrap resamples; fewer than in `measure`, as an audit runs many "
            "measures.",
        ),
    ] = 999,
    permutations: Annotated[
        int,
        typer.Option(
            metavar="N",
            rich_help_panel=Panel.STATISTICS,
            help="Number of permutations of each permutation test; fewer than in `measure`, too.",
        ),
    ] = 1999,
    threads: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=Panel.EXECUTION,
            help="Number of CPU threads; all cores by default, because an audit has a time budget.",
        ),
    ] = None,
    batch_size: BatchSize = 32,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    items: Items = True,
    json: Json = False,
    quiet: Quiet = False,
    log: Log = None,
    workers: Workers = None,
    executor: ExecutorName = LOCAL,
    address: Address = LOCAL,
    gpus: Gpus = 0,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    prompt_price: PromptPrice = 0.0,
    completion_price: CompletionPrice = 0.0,
    dry_run: DryRun = False,
) -> None:
    """Audit a model for stereotype bias and write a report.

    Runs measures of bias, scores of heads, counterexamples and checks of capability. A fixed core
    suite of measures runs first, the same for every budget, and gives the verdict. The budget
    decides what is added, and the report names what was skipped. An interrupted audit resumes where
    it stopped.

    Exit 0: the core suite was run, whether it shows bias or not. Exit 2: inconclusive, because part
    of it was not run or no measure could distinguish bias from none.
    """
    # The budget is the user's time on the clock, so loading the model counts, too.
    start = time.monotonic()
    from levelhead.core.files import local_path

    folder = local_path(output)
    if not quiet:
        typer.echo(f"loading {model}", err=True)
    from levelhead.study.audit.audit import AuditSources
    from levelhead.study.audit.requested_measures import request_measures
    from levelhead.study.audit.time_budget import parse_duration
    from levelhead.study.run import run_study
    from levelhead.study.steps.config import ModelSource

    limit = None if budget == NO_BUDGET else parse_duration(budget)
    cores = threads or os.cpu_count() or 1
    check_trackers(log)
    make_source = partial(ModelSource, dtype=dtype, batch_size=batch_size, device=device)
    source = make_source(path=model, edit=edit, revision=revision)
    other_source = None
    if against == BASE:
        if edit is None:
            raise typer.BadParameter("--against base compares with the unedited model: give --edit")
        other_source = make_source(path=model, revision=revision)
    elif against is not None:
        other_source = make_source(path=against)
    requested = request_measures(split_names(groups), split_names(languages))
    sources = AuditSources(source, other_source, requested)
    inference = Inference(seed=seed, resamples=resamples, permutations=permutations)
    token_budget = None
    if max_tokens is not None or max_cost is not None:
        from levelhead.models.serving.budget import TokenBudget

        if executor != LOCAL or workers is not None:
            raise typer.BadParameter("a budget of tokens cannot be shared with other processes")
        token_budget = TokenBudget(max_tokens, max_cost, prompt_price, completion_price)
    load_model = partial(
        open_model,
        model,
        budget=token_budget,
        edit=edit,
        revision=revision,
        dtype=dtype,
        batch_size=batch_size,
        device=device,
    )
    if dry_run:
        from levelhead.study.cost import estimate_study_cost

        lm = load_model()
        core = _plan_core(lm, sources, limit, inference, cores, record_items=items)
        cost = estimate_study_cost(core.study_config, folder)
        if json:
            typer.echo(cost.to_json())
            return
        typer.echo(str(cost))
        typer.echo("this is the core suite; the budget decides what is added to it")
        return
    clock = _Clock(start, limit, quiet)

    lm = load_model()
    audit = _load_or_plan_audit(
        lm,
        sources,
        folder,
        clock,
        inference,
        cores,
        record_items=items,
        has_token_budget=token_budget is not None,
    )
    with show_progress("queries", quiet=quiet) as on_event:
        results = run_study(
            audit.study_config,
            folder,
            executor=make_executor(executor, workers=workers, address=address, gpus=gpus),
            on_step=clock.report_step,
            context=RunContext(progress=on_event, token_budget=token_budget),
            # A measure that fails must not end the audit: the report names it.
            keep_going=True,
            deadline=clock.deadline(audit.core_steps),
        )
    report = _write_report(audit, results, folder)
    log_results(log, folder, name=model, files=[] if edit is None else [edit])
    _show(audit, results, report, json=json)


def split_names(text: str | None) -> list[str]:
    """Names between commas."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _load_or_plan_audit(
    lm: LM,
    sources: AuditSources,
    folder: Path,
    clock: _Clock,
    inference: Inference,
    threads: int,
    *,
    record_items: bool = True,
    has_token_budget: bool = False,
) -> Audit:
    """Load the plan of a folder, or plan an audit and save it, before anything is measured.

    A saved plan is followed: a run that was killed continues with the same queries. Another model
    or other settings are an error, and another budget plans again.
    """
    from levelhead.study.audit.audit import compute_request_hash, extend_audit
    from levelhead.study.audit.saved_plan import load_matching_audit, read_audit, save_audit
    from levelhead.study.audit.time_budget import FIRST_TIMED, MAX_TIMED, QueryTimer

    request_hash = compute_request_hash(lm, sources, inference, threads, record_items=record_items)
    audit = load_matching_audit(folder, request_hash)
    if audit is not None and audit.budget == clock.limit:
        # A folder may have lost the study, which is written from the plan.
        save_audit(audit, folder)
        return audit
    if audit is not None and not clock.quiet:
        print_line("the budget has changed: the additions to the core suite are planned again")
    core = _plan_core(lm, sources, clock.limit, inference, threads, record_items=record_items)
    timer = QueryTimer(
        lm,
        threads=threads,
        is_timed=clock.limit is not None,
        max_queries=FIRST_TIMED if has_token_budget else MAX_TIMED,
    )
    with show_steps(quiet=clock.quiet) as on_step:
        audit = extend_audit(
            core, lm, seconds_left=clock.seconds_left, on_step=on_step, timer=timer
        )
    is_core_only = audit.study_config == core.study_config
    if is_core_only and clock.limit is not None and not clock.quiet:
        print_line("the budget is too small for more than the core suite: no other step is added")
    save_audit(audit, folder)
    # From its bytes, whose tables are sorted: a report of a resumed audit lists them in this order.
    return read_audit(folder)


def _plan_core(
    lm: LM,
    sources: AuditSources,
    limit: float | None,
    inference: Inference,
    threads: int,
    *,
    record_items: bool = True,
) -> Audit:
    """Plan the core suite; a model that no measure of bias fits is inconclusive, not an error."""
    from levelhead.study.audit.audit import NoBiasMeasureError, plan_core

    try:
        return plan_core(
            lm,
            sources,
            budget=limit,
            inference=inference,
            threads=threads,
            record_items=record_items,
        )
    except NoBiasMeasureError as error:
        typer.echo(f"levelhead: {error}", err=True)
        raise ExitWithCode(INCONCLUSIVE) from None


class _Clock(NamedTuple):
    """The start of an audit, its budget in seconds, and whether progress is hidden."""

    start: float
    limit: float | None
    quiet: bool = False

    @property
    def seconds_left(self) -> float | None:
        """Seconds of the budget that are left; negative if it is spent."""
        return None if self.limit is None else self.start + self.limit - time.monotonic()

    def report_step(self, name: str, done: int, total: int) -> None:
        """Print which step begins, and how much time is left.

        Args:
            name: the step.
            done: number of steps that are done.
            total: number of all steps.
        """
        if self.quiet:
            return
        left_text = (
            ""
            if self.seconds_left is None or done == total
            else f", {_minutes(max(self.seconds_left, 0))} left"
        )
        print_line(
            f"[{done}/{total}] {name} (after {_minutes(time.monotonic() - self.start)}{left_text})"
        )

    def deadline(self, core_steps: frozenset[str]) -> Deadline | None:
        """Times after which no step may begin: the verdict needs the core suite.

        Args:
            core_steps: steps of the core suite, which may exceed the budget, though not without
                limit.
        """
        from levelhead.study.audit.audit import CORE_LIMIT
        from levelhead.study.distributed import Deadline

        if self.limit is None:
            return None
        return Deadline(self.start + self.limit, core_steps, self.start + CORE_LIMIT * self.limit)


def _write_report(audit: Audit, results: Mapping[str, Record], folder: Path) -> Path | None:
    """Write the report, if the report extra is installed; the results do not depend on it."""
    from levelhead.core.errors import MissingExtraError
    from levelhead.core.files import write_atomic
    from levelhead.report.audit_page.page import render_audit_page

    path = folder / "report.html"
    try:
        write_atomic(str(path), render_audit_page(audit, results, command=rerun_command(folder)))
    except MissingExtraError as error:
        typer.echo(
            f"levelhead: no report: {error}\n  then: levelhead report {folder} -o {path}",
            err=True,
        )
        return None
    return path


def rerun_command(folder: Path) -> str:
    """Command that repeats an audit with the same queries, from the plan in its folder.

    Args:
        folder: the audit's folder.
    """
    from levelhead.study.audit.saved_plan import STUDY_FILE

    return f"levelhead study run {shlex.quote(str(folder / STUDY_FILE))} -o again"


def _show(audit: Audit, results: Mapping[str, Record], report: Path | None, *, json: bool) -> None:
    from levelhead.report.audit_page.verdict import compute_audit_verdict

    audit_verdict = compute_audit_verdict(audit, results)
    if json:
        from levelhead.core.canonical_json import to_canonical_json

        rows = [
            _row(measure_verdict)
            for measure_verdict in (*audit_verdict.measures, *audit_verdict.derived)
        ]
        skipped = [row.model_dump() for row in audit.omitted]
        document = {
            "verdict": audit_verdict.headline,
            "complete": audit_verdict.is_complete,
            "conclusive": audit_verdict.is_conclusive,
            "coverage": audit_verdict.coverage,
            "planned": list(audit.core_names),
            "run": [
                measure_verdict.name
                for measure_verdict in audit_verdict.measures
                if measure_verdict.measurement and measure_verdict.is_core
            ],
            "skipped": [
                {key: row[key] for key in ("name", "reason", "details")} for row in skipped
            ],
            "report": None if report is None else str(report),
            "measures": rows,
        }
        typer.echo(to_canonical_json(document).decode(), file=sys.stdout)
    else:
        for line in (audit_verdict.headline, *audit_verdict.sentences):
            typer.echo(line, file=sys.stdout)
        if report is not None:
            typer.echo(f"report: {report}", file=sys.stdout)
    if not audit_verdict.is_complete:
        typer.echo(f"levelhead: INCONCLUSIVE: {audit_verdict.coverage}", err=True)
    elif not audit_verdict.is_conclusive:
        typer.echo("levelhead: INCONCLUSIVE: no measure could distinguish bias from none", err=True)
    if not (audit_verdict.is_complete and audit_verdict.is_conclusive):
        raise ExitWithCode(INCONCLUSIVE)


def _row(measure_verdict: AuditMeasureVerdict) -> dict[str, object]:
    """Convert the verdict of a measure to plain JSON."""
    from levelhead.core.calibration import NOT_CALIBRATED, calibration_verdict

    return {
        "name": measure_verdict.name,
        "role": measure_verdict.role,
        "core": measure_verdict.is_core,
        "status": measure_verdict.status,
        "direction": measure_verdict.toward,
        "reason": measure_verdict.reason,
        "explanation": measure_verdict.explanation,
        "calibration": calibration_verdict(measure_verdict.measurement)
        if measure_verdict.measurement
        else NOT_CALIBRATED,
    }


def _minutes(elapsed: float) -> str:
    minutes, seconds = divmod(round(elapsed), 60)
    return f"{minutes}:{seconds:02}"
