import pytest

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.data.records import LabelledExample
from levelhead.data.user_files import read_user_texts


def test_three_kinds_of_files_say_the_same(tmp_path):
    (tmp_path / "a.csv").write_text('id,said,y\n1,"Yes, she did.",1\n2,No.,0\n', "utf-8")
    (tmp_path / "a.tsv").write_text("said\ty\nYes, she did.\t1\nNo.\t0\n", "utf-8")
    rows = '{"said": "Yes, she did.", "y": 1}\n\n{"said": "No.", "y": 0}\n'
    (tmp_path / "a.jsonl").write_text(rows, "utf-8")
    wanted = (LabelledExample("row 1", "Yes, she did.", "1"), LabelledExample("row 2", "No.", "0"))
    for name in ("a.csv", "a.tsv", "a.jsonl"):
        assert read_user_texts(str(tmp_path / name), "said", "y") == wanted
    assert [row.label for row in read_user_texts(str(tmp_path / "a.csv"), "said")] == ["", ""]


def test_quotes_swallow_nothing(tmp_path):
    (tmp_path / "a.tsv").write_text('text\ty\n"She is here\t1\nHe said "no"\t0\n', "utf-8")
    result = read_user_texts(str(tmp_path / "a.tsv"), "text", "y")
    assert [row.text for row in result] == ['"She is here', 'He said "no"']
    long = "word " * 40_000
    (tmp_path / "b.csv").write_text(f'text\n"{long}"\n', "utf-8")
    assert len(read_user_texts(str(tmp_path / "b.csv"), "text")[0].text) == len(long)
    (tmp_path / "c.jsonl").write_text('{"text": "one\u2028two"}\n', "utf-8")
    assert read_user_texts(str(tmp_path / "c.jsonl"), "text")[0].text == "one\u2028two"


@pytest.mark.parametrize(
    ("name", "full", "output"),
    [
        ("a.csv", "said\nYes\n", "no column of a.csv named 'text'"),
        ("a.csv", "text;y\nYes, she did;1\n", "a.csv are separated by semicolons"),
        ("a.csv", '"text";"y"\n"Yes";"1"\n', "a.csv are separated by semicolons"),
        ("a.csv", "text,y\nYes\n", "row 1 of a.csv has more or fewer fields"),
        ("a.csv", "text,y\nYes,1\n  ,0\n", "row 2 of a.csv has no text"),
        ("a.csv", "text,y\nYes,\n", "row 1 of a.csv has no text or label"),
        ("a.csv", "text,y,y\nYes,1,0\n", "two columns of a.csv have the same name"),
        ("a.csv", 'text,y\n"Yes,1\n', "a.csv cannot be read as a table"),
        ("a.jsonl", '{"text": "a", "y": 1.5}\n', "a number with a point"),
        ("a.jsonl", '{"text": "a", "y": 1}\n[1]\n', "row 2 of a.jsonl is no JSON object"),
        ("a.jsonl", '{"text": null, "y": 1}\n', "row 1 of a.jsonl has no text"),
        ("a.xlsx", "", "a.xlsx is none of .csv, .tsv, .jsonl"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_row(tmp_path, name, full, output):
    (tmp_path / name).write_text(full, "utf-8")
    with pytest.raises((LevelheadError, UnknownNameError), match=output):
        read_user_texts(str(tmp_path / name), "text", "y")
    with pytest.raises(LevelheadError, match="cannot read"):
        read_user_texts(str(tmp_path / "none.csv"), "text")


def test_a_score_may_have_a_point(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "y": 3.8}\n', "utf-8")
    (result,) = read_user_texts(str(tmp_path / "a.jsonl"), "text", "y", scores=True)
    assert result.label == "3.8"
