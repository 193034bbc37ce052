"""An audit in the words of the tiny models: a core suite and more that a test can run in seconds.

python tests/work/tiny_audits.py FOLDER audit ...     the command line with this suite
"""

import shutil
import sys
from pathlib import Path

import studies
from metric_cases import corpus, sentences

from levelhead.study.audit import budget_shares, core_suite, suite, time_budget
from levelhead.study.audit.budget_shares import with_option
from levelhead.study.audit.core_suite import BERT, CoreMeasure
from levelhead.study.audit.suite import LIMITS, QUOTAS, SHARES, AuditMeasure


def replacements(folder):
    """What replaces the suite, as arguments of `setattr`; its files are in the folder."""
    folder.mkdir(exist_ok=True)
    texts = folder / "texts.txt"
    texts.write_text("\n".join(sentences()))
    # A copy: the file of the tiny measures goes with the process that wrote it.
    contexts = shutil.copy(corpus(), folder / "corpus.txt")
    seat = f"seat:lexicon={studies.lexicon(folder)},targets=things,corpus={contexts}"
    core = (
        CoreMeasure("seat", with_option(seat, QUOTAS[-1]), (BERT,)),
        CoreMeasure("pppl", f"pppl:texts={texts},limit=2", (BERT,)),
    )
    measures = (
        AuditMeasure("seat", seat, QUOTAS),
        AuditMeasure("half", seat, SHARES),
        AuditMeasure("pppl", f"pppl:texts={texts}", LIMITS),
        AuditMeasure("ppl", f"ppl:texts={texts}", LIMITS),
    )
    return (
        (core_suite, "CORE", core),
        (suite, "AUDIT_MEASURES", measures),
        (suite, "LOCATORS", measures[:1]),
        (suite, "MIN_UNITS", 3),
        (budget_shares.TimeBudget, "_time_utility_measure", lambda subset: None),
        (budget_shares.TimeBudget, "plan_knowledge", lambda subset: {}),
    )


def steady_clock():
    """A machine on which every query takes equally long, as arguments of `setattr`."""
    return time_budget, "_time_query", lambda lm, query_set, queries: 1e-4


if __name__ == "__main__":
    from levelhead.cli import main

    for change in replacements(Path(sys.argv.pop(1))):
        setattr(*change)
    main()
