"""Mining over the whole of the stand-in corpora."""

from assets import asset

from levelhead.data.corpus.mine import mine_corpus


def test_all_texts_are_read(tmp_path):
    folder = asset("data", "news-corpus-standin")
    output = mine_corpus([f"{folder}/*.tsv"], tmp_path / "amalgum", quota=10)
    lines = sum(path.read_bytes().count(b"\n") for path in folder.glob("*.tsv"))
    assert output["counts"]["texts"] == lines == 107_096
    assert 30_000 < output["counts"]["sentences"] < lines  # those that hold a word
    assert output["pairs"] > 500
    assert max(output["contexts"].values()) == 10
    leipzig = tmp_path / "leipzig.tsv"
    leipzig.write_bytes((folder / "leipzig_eng_news_2016_10K-sentences.txt").read_bytes())
    assert mine_corpus([leipzig], tmp_path / "leipzig")["counts"]["texts"] == 10_000
