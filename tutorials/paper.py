# %% [markdown]
# # A number for a paper
#
# One measure with its interval, two models compared item by item, a table, a figure.

# %%
from pathlib import Path

import levelhead as lh
from levelhead.report.charts.forest import forest_chart
from levelhead.report.save import save
from levelhead.report.tables import results_to_rows, to_latex_bytes

lm = lh.load("bert-base-uncased")  # or a folder with a checkpoint

# %% [markdown]
# ## The measure
#
# A measure is a value: all of its options are recorded in the result. A notebook shows a result as
# a table with its interval, parity, p-value and number of items, and a chart.

# %%
words = (("woman", "girl", "lady"), ("man", "boy", "guy"))  # by default all of the lexicon's
cloze = lh.measures.Cloze(backgrounds=1, words=words)
result = cloze(lm)
result

# %%
print("needed to read it correctly:", result.extra("mass covered"))
print("items:", result.n, "dropped:", len(result.dropped))
result.to_frame()  # pandas if it is installed, otherwise polars

# %% [markdown]
# ## The items behind the number
#
# Each item has its text, its value and the responses: here the probabilities of the words in the
# blank. `RunContext(record_items=False)` keeps confidential texts out of a result.

# %%
result.per_item().sort_values("value").head()

# %% [markdown]
# ## Two models
#
# An edited model is a model. The two are compared on the same items, so the interval is of the
# difference itself, which two separate intervals would not give.

# %%
site = lh.Site.from_paper_label("2-1")  # layer 2, head 1, as papers count
masked = lm.edited(lh.mitigation.mask_heads([site]))
comparison = lh.compare(cloze, lm, masked)
comparison

# %% [markdown]
# ## For the paper
#
# A table with intervals and marks, a figure, and the result with its provenance.

# %%
Path("table.tex").write_bytes(
    to_latex_bytes(results_to_rows({"cloze": result, "masked": comparison}))
)
rows = [("unedited", result), ("2-1 masked", cloze(masked))]
figure = forest_chart(rows, title="Who works as what?", share_axis=True)
save(figure, "figure.svg")
Path("result.json").write_text(result.to_json())  # Measurement.from_json reads it
figure
