"""Swaps by a table of agreement: what changes, what is refused, and languages of users."""

import pytest

from levelhead.core.errors import LevelheadError
from levelhead.data.lexicons.lexicon import lexicon


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        ("es", "La mujer es alta.", "El hombre es alto."),
        ("es", "Vi a la mujer y al hombre.", "Vi al hombre y a la mujer."),
        ("es", "Ellas son médicas.", "Ellos son médicos."),
        ("it", "L'uomo è stato assunto.", "La donna è stata assunta."),
        ("it", "Lo zio parla.", "La zia parla."),
        ("it", "La sposa parla.", "Lo sposo parla."),
        ("fr", "L\u2019homme n'est pas arrivé.", "La femme n'est pas arrivée."),
        ("fr", "La femme a été engagée.", "L'homme a été engagé."),
        ("fr", "Il y a du monde.", "Il y a du monde."),
        ("de", "Er ist Lehrer.", "Sie ist Lehrerin."),
        ("de", "Ich sprach mit der Frau.", "Ich sprach mit dem Mann."),
        ("de", "Sie ist Kfz-Mechanikerin.", "Er ist Kfz-Mechaniker."),
    ],
)
def test_what_agrees_changes(code, text, expected):
    assert lexicon(f"gender-{code}").swap(text).counterfactual == expected


@pytest.mark.parametrize(
    ("code", "text", "reason"),
    [
        ("de", "Ich kenne sie.", "context does not show"),
        ("de", "Gestern kam die Frau.", "case is not known"),
        ("de", "Er ist Kaufmann.", "its other form is not known"),
        ("de", "Er kennt die Lehrerin als Lehrerin.", "another person"),
        ("es", "La mujer cansada duerme.", "may agree with the person"),
        ("es", "La mujer llegó. Estaba enferma.", "may agree with the person"),
        ("fr", "La fille dort.", "counterpart or case"),
        ("fr", "Elle vit seule.", "may stand for the person"),
    ],
)
def test_what_cannot_be_known_is_refused(code, text, reason):
    result = lexicon(f"gender-{code}").swap(text)
    assert result.counterfactual is None
    assert reason in result.refusals[0].reason


def test_positions_of_changes_are_those_of_the_texts():
    result = lexicon("gender-it").swap("Ieri l'uomo era stanco.")
    assert result.text == "Ieri la donna era stanca."
    for change in result.changes:
        assert result.original[change.start : change.end] == change.old
        assert result.text[change.new_start : change.new_end] == change.new


LEXICON = """name = "made-up"
language = "xx"
groups = ["a", "b"]
source = "me"
licence = "CC0-1.0"
limits = "none"
agreement = "{agreement}"
[[terms]]
kind = "person"
rows = [{{ a = "mim", b = "pip" }}]
"""


def test_a_made_up_language_is_two_files(tmp_path):
    path = tmp_path / "made-up.toml"
    path.write_text(LEXICON.format(agreement="agreement.toml"))
    with pytest.raises(LevelheadError, match="no table of agreement"):
        lexicon(path)
    (tmp_path / "agreement.toml").write_text(
        'copulas = ["zo"]\nphrase = [{ a = "da", b = "do" }]\nsuffixes = [{ a = "ix", b = "ox" }]\n'
    )
    words = lexicon(path)
    assert words.swap("Da mim zo lelix.").counterfactual == "Do pip zo lelox."
    first = words.sha256
    (tmp_path / "agreement.toml").write_text('copulas = ["zo"]\n')
    # Another table gives other texts: it is part of the provenance.
    assert lexicon(path).sha256 != first
    (tmp_path / "agreement.toml").write_text('copula = ["zo"]\n')
    with pytest.raises(LevelheadError, match="is no table of agreement"):
        lexicon(path)
    path.write_text(LEXICON.format(agreement="../agreement.toml"))
    with pytest.raises(LevelheadError, match="no table of agreement"):
        lexicon(path)
