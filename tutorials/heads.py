# %% [markdown]
# # Look into heads
#
# Score the heads of a model, confirm them on other words, mask them, and compare with controls.

# %%
from pathlib import Path

import levelhead as lh
from levelhead.report.save import save

lm = lh.load("bert-base-uncased")  # or a folder with a checkpoint

# %% [markdown]
# ## The measure
#
# Contexts for SEAT. Your own corpus is better: `corpus="news.txt"`.

# %%
targets = "nurse secretary librarian hairdresser teacher carpenter mechanic plumber engineer pilot"
groups = "she he woman man mother father sister brother queen king"
frames = ("We met {} again.", "Then {} left.", "They saw {} there.", "In the end {} came home.")
phrases = [w if w in ("she", "he") else f"the {w}" for w in f"{targets} {groups}".split()]
Path("contexts.txt").write_text("\n".join(f.format(p) for p in phrases for f in frames))
seat = lh.measures.Seat(lh.data.lexicon("gender-en"), corpus="contexts.txt")

# %% [markdown]
# ## Locate
#
# One backward pass scores every head; the first five are then ablated one by one, on the half of
# the items that did not choose them.

# %%
heads = lh.locate(lm, seat, ablate_top=5, bias_direction="+")
save(lh.chart(heads), "heads.svg")
heads

# %%
print(heads.split.claim)
heads.to_frame().head()

# %% [markdown]
# ## A control
#
# Does this head matter more than any other? The first compared with the one with the smallest
# score; on all words, which include those that chose it.

# %%
first = heads.ranked_heads[0]
smallest = min(heads.heads, key=lambda head: abs(head.score))
for head in (first, smallest):
    edited = lm.edited(lh.mitigation.mask_heads([lh.Site.from_paper_label(head.label)]))
    print("without", head.label, lh.compare(seat, lm, edited))

# %% [markdown]
# ## Mask
#
# Several heads at once, as an edit that can be saved, loaded again and merged into plain weights.

# %%
edit = lh.mitigation.mask_heads(heads.top(3))
lh.save_edits([edit], "edit")
lh.compare(seat, lm, lm.edited(edit))
