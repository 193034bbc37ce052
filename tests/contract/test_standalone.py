"""On every family, the lines of a README do what levelhead's own hooks do."""

import re

import pytest
import torch
import zoo
from shifts import conditional_shift, shift

from levelhead.models.architectures.families import FAMILIES
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.edits.erasure import Erasure
from levelhead.models.loading.load import load
from levelhead.models.queries.query import LogProbs, Query, ScoredPosition
from levelhead.models.sites import PER_HEAD_STREAMS, Site

TEXT = "the nurse works as a doctor ."


def projection(lm, site, k=2, **options):
    sample = torch.randn(
        lm.layout.site_width(site),
        k,
        generator=torch.Generator().manual_seed(0),
        dtype=torch.float64,
    )
    return Projection(site, torch.linalg.qr(sample).Q.T, **options)


def erasure(lm, site, **options):
    basis = projection(lm, site, k=1).basis
    mean = torch.linspace(-1, 2, basis.shape[1], dtype=torch.float64)
    return Erasure(site, left=basis, right=basis, mean=mean, **options)


def everywhere(lm):
    first = "all" if lm.is_causal else "first"
    yield HeadScale([Site("head_out", 0, 0), Site("head_out", 1, 2)], 0.3)
    for stream in PER_HEAD_STREAMS:
        yield projection(lm, Site(stream, 1, 1), weights=torch.tensor([1, 0.4]))
        yield erasure(lm, Site(stream, 1))
        yield shift(lm, Site(stream, 1, 0), strength=0.3)
        yield conditional_shift(lm, Site(stream, 0), strength=0.3)
        yield projection(lm, Site(stream, 2), tokens=first)
    yield projection(lm, Site("embeddings"), tokens=first)
    yield projection(lm, Site("mlp_out", 1))
    for layer in range(3):
        yield erasure(lm, Site("block_out", layer), tokens=first if layer == 2 else "all")
        yield projection(lm, Site("block_out", layer))
        yield shift(lm, Site("block_out", layer), strength=-0.5)
        yield conditional_shift(lm, Site("block_out", layer), strength=0.2, tokens=first)


def read_output(lm, row, size):
    """Log-probabilities of every word at every token."""
    every = tuple(range(size))
    targets = [ScoredPosition(i, every, every) for i in range(len(row.ids))]
    queries = (Query((row,), LogProbs(((target,),), columns=size)) for target in targets)
    return torch.cat([lm.run(ask) for ask in queries])


@pytest.mark.parametrize("family", FAMILIES)
def test_the_readme_s_lines_are_the_hooks(family, tmp_path, monkeypatch):
    row = next(row for row in FAMILIES[family].classes if row.vocabulary)
    base = load(zoo.folder(family, row.name))
    lm = base.edited(*everywhere(base))
    lm.save_pretrained(tmp_path / "out", with_edit_file=True)
    text = (tmp_path / "out" / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {}
    monkeypatch.chdir(tmp_path / "out")
    exec(code, names)  # noqa: S102  # it is what readers will do
    (encoded,) = lm.tokens.encode([TEXT])
    with torch.no_grad():
        output = names["model"](torch.tensor([encoded.row.ids]))
    logits = output.logits if "logits" in output else output.prediction_logits
    result = read_output(lm, encoded.row, logits.shape[-1])
    torch.testing.assert_close(logits[0].log_softmax(-1), result, rtol=1e-5, atol=1e-5)
    assert (result - read_output(base, encoded.row, logits.shape[-1])).abs().max() > 0.1
