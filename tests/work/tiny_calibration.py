"""A calibration that trains three models of a second each, at sizes at which nothing is learned.

    python tests/work/tiny_calibration.py calibrate ...     the command line with these models

In one process: a worker would import the models of the real calibration.
"""

import os
from dataclasses import replace
from pathlib import Path

from levelhead.calibrate import dose_response, edits, locators, run
from levelhead.calibrate.organisms import organism
from levelhead.core.run_context import Inference

FEW = Inference(resamples=99, permutations=99)
MEASURES = {"seat", "group_preference"}


def small(*given, **options):
    """An organism of few texts, trained for few steps."""
    made = organism.make_organism(*given, **options)
    config = replace(made.train_config, width=32, steps=20)
    return replace(made, train_config=config, n_documents=300)


def replacements():
    """What replaces the models, as arguments of `setattr`."""
    # What is trained belongs to the run: one that was killed must continue it.
    os.environ["LEVELHEAD_CACHE"] = str(Path("cache").resolve())
    doses = tuple(
        model._replace(permutations=0) for model in dose_response.list_dose_models(quick=True)
    )
    applicable = dose_response.list_applicable_measures

    def list_few_measures(*models):
        return {name: measure for name, measure in applicable(*models).items() if name in MEASURES}

    return (
        (dose_response, "make_organism", small),
        (dose_response, "INFERENCE", FEW),
        (dose_response, "PERMUTED_INFERENCE", FEW),
        (dose_response, "list_dose_models", lambda *, quick: doses),
        (dose_response, "list_applicable_measures", list_few_measures),
        (locators, "list_locator_models", lambda *, quick: ()),
        (edits, "list_edit_models", lambda *, quick: ()),
        (edits, "list_known_truth_cases", lambda *, quick: ()),
        (organism, "CONTEXT_DOCUMENTS", 100),
        (run, "compute_locator_calibrations", lambda known, ordinary: ()),
    )


if __name__ == "__main__":
    from levelhead.cli import main

    for change in replacements():
        setattr(*change)
    main()
