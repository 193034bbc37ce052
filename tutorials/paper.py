"""A number for a paper: a ruler, its interval, two models compared, a table, a figure.

python tutorials/paper.py [MODEL]
"""

import sys

import levelhead as lh
from levelhead.report.charts.forest import forest
from levelhead.report.save import save
from levelhead.report.tables import latex, table_of

lm = lh.load(sys.argv[1] if len(sys.argv) > 1 else "bert-base-uncased")

# A ruler is a value: what is asked, with every choice written in its name.
words = (("woman", "girl", "lady"), ("man", "boy", "guy"))  # by default all of the lexicon's
cloze = lh.Cloze(backgrounds=1, words=words)
found = cloze(lm)
print(found)  # value, interval, parity, p, n
print("without this it can be misread:", found.aside("mass covered"))
print("asked of:", found.n, "dropped:", len(found.dropped))

# An edited model is a model. The two are compared on the same items, so the interval is of the
# difference and not of two numbers that happen to lie apart.
masked = lm.edited(lh.HeadScale([lh.Site.paper("2-1")], 0))  # layer 2, head 1, as papers count
difference = lh.compare(cloze, lm, masked)
print(difference)

# What goes into the paper: a table with intervals and marks, and a figure.
with open("table.tex", "wb") as file:
    file.write(latex(table_of({"cloze": found, "masked": difference})))
rows = [("whole", found), ("2-1 masked", cloze(masked))]
save(forest(rows, title="Who works as what?"), "figure.svg")
with open("found.json", "w") as file:  # everything, with provenance; Measurement.from_json reads it
    file.write(found.to_json())
