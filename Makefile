.PHONY: help check full lint types layers package test docs benchmarks extras mutants format

help:  ## list the targets
	@grep -hE '^[a-z ]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

check:  ## everything CI checks, minutes per stage
	@bash .ci/run

lint types layers package test docs benchmarks extras:  ## one stage of check
	@bash .ci/run $@

full: mutants  ## every test of both tiers, and all mutants: hours, before a release
	@env=$$(bash .ci/env) && OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1 PATH=$$env/bin:$$PATH PYTHONPATH=src \
	  pytest -n 2 --dist worksteal -m 'full or not full' --timeout 7200 --time-report 15 \
	  --doctest-modules --pyargs levelhead tests

mutants:  ## break every formula in one place; the test named for it must fail
	@env=$$(bash .ci/env) && PYTHONPATH=src $$env/bin/python tools/mutants.py

format:  ## let ruff format and fix what it can
	@env=$$(bash .ci/env) && $$env/bin/ruff format . && $$env/bin/ruff check --fix .
