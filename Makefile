.PHONY: help check lint types layers test docs benchmarks extras mutants format

help:  ## list the targets
	@grep -hE '^[a-z ]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

check:  ## everything CI checks, minutes per stage
	@bash .ci/run

lint types layers test docs benchmarks extras:  ## one stage of check
	@bash .ci/run $@

mutants:  ## break every formula in one place; the test named for it must catch it
	@env=$$(bash .ci/env) && PYTHONPATH=src $$env/bin/python tools/mutants.py

format:  ## let ruff format and mend what it can
	@env=$$(bash .ci/env) && $$env/bin/ruff format . && $$env/bin/ruff check --fix .
