"""A number for a paper: a measure, its interval, two models compared, a table, a figure.

python tutorials/paper.py [MODEL]
"""

import sys

import levelhead as lh
from levelhead.report.charts.forest import forest_chart
from levelhead.report.save import save
from levelhead.report.tables import results_to_rows, to_latex_bytes

lm = lh.load(sys.argv[1] if len(sys.argv) > 1 else "bert-base-uncased")

# A measure is a value: all of its options are recorded in the result.
words = (("woman", "girl", "lady"), ("man", "boy", "guy"))  # by default all of the lexicon's
cloze = lh.measures.Cloze(backgrounds=1, words=words)
result = cloze(lm)
print(result)  # value, interval, parity, p, n
print("needed to read it correctly:", result.extra("mass covered"))
print("items:", result.n, "dropped:", len(result.dropped))

# An edited model is a model. The two are compared on the same items, so the interval is of the
# difference itself, which two separate intervals would not give.
site = lh.Site.from_paper_label("2-1")  # layer 2, head 1, as papers count
masked = lm.edited(lh.mitigation.mask_heads([site]))
comparison = lh.compare(cloze, lm, masked)
print(comparison)

# For the paper: a table with intervals and marks, and a figure.
with open("table.tex", "wb") as file:
    file.write(to_latex_bytes(results_to_rows({"cloze": result, "masked": comparison})))
rows = [("unedited", result), ("2-1 masked", cloze(masked))]
save(forest_chart(rows, title="Who works as what?"), "figure.svg")
with open("result.json", "w") as file:  # with provenance; Measurement.from_json reads it
    file.write(result.to_json())
