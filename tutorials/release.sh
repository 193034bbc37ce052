# May this model be released? An audit, a policy, an exit code; then plain weights of an edited model.
#
#     cd "$(mktemp -d)" && bash CLONE/tutorials/release.sh [MODEL]
set -euo pipefail
model=${1:-bert-base-uncased}

# A core suite of measures, always the same, and further measures if there is time. Exit 2 if the
# suite was not finished: that is no verdict. Open audit/report.html.
levelhead audit "$model" -o audit --budget 2m

# The requirements of a release. A measure that is missing, or used too few items, never passes.
cat > policy.toml <<'POLICY'
format = "levelhead-gate-2"

[[rule]]
measure = "crows"
quantity = "distance"
at_most = 10.0
purpose = "no farther from parity than the last release"
POLICY

# 0 pass, 1 fail, 2 inconclusive, 3 error: a pipeline needs nothing else.
code=0
levelhead gate audit --policy policy.toml --junit gate.xml || code=$?
echo "the gate says $code"

# The same numbers as a table, and for the model's page.
levelhead report audit -o table.tex
levelhead report audit -o card.md  # or your model's README.md: its other text stays

# An edit of three heads, saved as plain weights that AutoModel loads without levelhead.
python - <<'PYTHON'
import levelhead as lh

heads = [lh.Site.from_paper_label(name) for name in ("2-1", "3-2", "4-3")]  # better: those of `levelhead locate`
lh.save_edits([lh.edits.HeadScale(heads, 0)], "edit")
PYTHON
levelhead export "$model" --edit edit -o edited
