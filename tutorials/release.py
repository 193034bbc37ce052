# %% [markdown]
# # May this model be released?
#
# An audit, its results as tables and data frames, and a gate. `release.sh` does the same in a
# pipeline.

# %%
from pathlib import Path

import levelhead as lh
from levelhead.report.gate.gate import run_gate
from levelhead.report.gate.policy import read_policy
from levelhead.report.tables import results_to_frame
from levelhead.study.results_dir import load_results

# %% [markdown]
# ## The audit
#
# A core suite of measures, always the same, and further measures if there is time. Open
# `audit/report.html` for the report. Exit 2 means that the suite was not finished: no verdict.

# %% language="bash" magic_args="--no-raise-error"
# levelhead audit bert-base-uncased -o audit --budget 2m

# %% [markdown]
# ## The results
#
# Every number with its interval, as a data frame; a single measurement as a table.

# %%
results = load_results("audit")
results_to_frame(results)[["name", "what", "value", "low", "high", "p", "n", "unit"]]

# %%
measurements = [result for result in results.values() if isinstance(result, lh.Measurement)]
measurement = measurements[0]
measurement

# %% [markdown]
# The items that contribute most, with their texts and the responses of the model.

# %%
measurement.per_item().sort_values("value", key=abs).tail()

# %% [markdown]
# ## The gate
#
# The requirements of a release. A measure that is missing, or used too few items, never passes.

# %%
Path("policy.toml").write_text("""
format = "levelhead-gate-2"

[[rule]]
measure = "crows"
quantity = "distance"
at_most = 10.0
purpose = "no farther from parity than the last release"
""")
run_gate("audit", read_policy("policy.toml"))
