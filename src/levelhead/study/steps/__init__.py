"""The kinds of steps that a study is made of: a file and a row of `kinds.STEP_KINDS` each."""
