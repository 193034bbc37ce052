"""Look into heads: score them, confirm on other words, set controls beside, draw the map.

python tutorials/heads.py [MODEL]
"""

import sys
from pathlib import Path

import levelhead as lh
from levelhead.report.save import save

lm = lh.load(sys.argv[1] if len(sys.argv) > 1 else "bert-base-uncased")

# Contexts for SEAT. A corpus of your own is better: `corpus="news.txt"`.
targets = "nurse secretary librarian hairdresser teacher carpenter mechanic plumber engineer pilot"
groups = "she he woman man mother father sister brother queen king"
frames = ("We met {} again.", "Then {} left.", "They saw {} there.", "In the end {} came home.")
named = [w if w in ("she", "he") else f"the {w}" for w in f"{targets} {groups}".split()]
Path("contexts.txt").write_text("\n".join(f.format(w) for w in named for f in frames))
seat = lh.Seat(lh.lexicon("gender-en"), corpus="contexts.txt")

# One backward pass scores every head; the first five are then ablated one by one, on the half of
# the questions that did not choose them.
heads = lh.locate(lm, seat, exact=5, sign="+")
print(heads)
for one in heads.ranked[:5]:
    print(one.label, f"score {one.score:.3g}, effect {one.effect:.3g} {one.interval}")
print(heads.halves.claim)
save(lh.chart(heads), "heads.svg")

# Is it this head, or any head? The first beside the one with the smallest score; on all words,
# those that chose it among them.
first, other = heads.ranked[0], min(heads.heads, key=lambda one: abs(one.score))
for one in (first, other):
    edited = lm.edited(lh.HeadScale([lh.Site.paper(one.label)], 0))
    print("without", one.label, lh.compare(seat, lm, edited))

# Several at once, as an edit that can be saved, loaded again and baked into plain weights.
edit = lh.mask(heads.top(3))
lh.save_edits([edit], "edit")
print("without the first three", lh.compare(seat, lm, lm.edited(edit)))
