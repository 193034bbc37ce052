"""The kinds of steps of a study: one file and one row of `kinds.STEP_KINDS` each."""
