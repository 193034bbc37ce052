"""Look into heads: score them, confirm on other words, compare with controls, draw the map.

python tutorials/heads.py [MODEL]
"""

import sys
from pathlib import Path

import levelhead as lh
from levelhead.report.save import save

lm = lh.load(sys.argv[1] if len(sys.argv) > 1 else "bert-base-uncased")

# Contexts for SEAT. Your own corpus is better: `corpus="news.txt"`.
targets = "nurse secretary librarian hairdresser teacher carpenter mechanic plumber engineer pilot"
groups = "she he woman man mother father sister brother queen king"
frames = ("We met {} again.", "Then {} left.", "They saw {} there.", "In the end {} came home.")
phrases = [w if w in ("she", "he") else f"the {w}" for w in f"{targets} {groups}".split()]
Path("contexts.txt").write_text("\n".join(f.format(p) for p in phrases for f in frames))
seat = lh.measures.Seat(lh.data.lexicon("gender-en"), corpus="contexts.txt")

# One backward pass scores every head; the first five are then ablated one by one, on the half of
# the items that did not choose them.
heads = lh.locate(lm, seat, ablate_top=5, bias_direction="+")
print(heads)
for head in heads.ranked_heads[:5]:
    print(head.label, f"score {head.score:.3g}, effect {head.effect:.3g} {head.interval}")
print(heads.split.claim)
save(lh.chart(heads), "heads.svg")

# Does this head matter more than any other? The first compared with the one with the smallest
# score; on all words, which include those that chose it.
first = heads.ranked_heads[0]
smallest = min(heads.heads, key=lambda head: abs(head.score))
for head in (first, smallest):
    edited = lm.edited(lh.mitigation.mask_heads([lh.Site.from_paper_label(head.label)]))
    print("without", head.label, lh.compare(seat, lm, edited))

# Several at once, as an edit that can be saved, loaded again and merged into plain weights.
edit = lh.mitigation.mask_heads(heads.top(3))
lh.save_edits([edit], "edit")
print("without the first three", lh.compare(seat, lm, lm.edited(edit)))
