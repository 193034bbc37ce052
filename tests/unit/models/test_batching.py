import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from levelhead.core.errors import LevelheadError
from levelhead.models.inputs.batching import Batching, make_batch, sorted_by_length
from levelhead.models.inputs.tokenizer import TokenRow

rows_of = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=30)


def as_rows(lists):
    return [TokenRow(tuple(ids), None) for ids in lists]


@given(rows_of, st.integers(1, 8), st.booleans(), st.randoms())
def test_batches_depend_on_the_rows_alone(lists, size, level, random):
    def contents(rows):
        batching = Batching(size, level)
        return [
            sorted(rows[i].ids for i in indices)
            for indices, _ in batching.run_batches(rows, lambda indices: 0)
        ]

    shuffled = list(lists)
    random.shuffle(shuffled)
    assert contents(as_rows(lists)) == contents(as_rows(shuffled))
    assert all(len(batch) <= size for batch in contents(as_rows(lists)))
    if level:
        assert all(len({len(ids) for ids in batch}) == 1 for batch in contents(as_rows(lists)))


@given(rows_of)
def test_every_row_is_run_once(lists):
    seen = [i for indices, _ in Batching(3).run_batches(as_rows(lists), len) for i in indices]
    assert sorted(seen) == list(range(len(lists)))
    assert sorted_by_length(as_rows(lists)) == seen


def test_the_batch_shrinks_when_memory_runs_out_and_stays_small():
    rows = as_rows([[1] * n for n in range(1, 21)])
    sizes = []

    def run(indices):
        sizes.append(len(indices))
        if len(indices) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return len(indices)

    batching = Batching(16)
    done = [i for indices, _ in batching.run_batches(rows, run) for i in indices]
    assert sorted(done) == list(range(20))
    assert sizes[:4] == [16, 8, 4, 2]
    assert max(sizes[3:]) == 2
    assert batching.smallest_size == 2


def test_memory_of_the_cpu_counts_too():
    rows = as_rows([[1], [1, 2]])

    def run(indices):
        if len(indices) > 1:
            return torch.empty(2**50)
        return 0

    batching = Batching(2)
    assert len(list(batching.run_batches(rows, run))) == 2
    assert batching.smallest_size == 1


def test_one_text_that_does_not_fit_is_an_error():
    def run(indices):
        raise MemoryError

    with pytest.raises(LevelheadError, match="not enough memory for a single text") as error:
        list(Batching(4).run_batches(as_rows([[1], [2]]), run))
    assert "device_map" in error.value.hint


def test_other_errors_are_not_taken_for_memory():
    def run(indices):
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        list(Batching(4).run_batches(as_rows([[1], [2]]), run))


@pytest.mark.parametrize("size", [0, -1, 1.5, True])
def test_impossible_sizes_are_refused(size):
    with pytest.raises(LevelheadError, match="is not a batch size"):
        Batching(size)


def test_padding_is_masked():
    rows = [TokenRow((5, 6, 7), (0, 0, 1)), TokenRow((8,), (0,))]
    batch = make_batch(rows, [1, 0], pad=9, device=torch.device("cpu"))
    assert batch.inputs["input_ids"].tolist() == [[8, 9, 9], [5, 6, 7]]
    assert batch.inputs["attention_mask"].tolist() == [[1, 0, 0], [1, 1, 1]]
    assert batch.inputs["token_type_ids"].tolist() == [[0, 0, 0], [0, 0, 1]]
