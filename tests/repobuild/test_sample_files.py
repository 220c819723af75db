"""Sample files of every format become typed columns, and broken ones are named with their line."""

import os
import zipfile

import numpy as np
import pandas as pd
import pytest

from repobuild.errors import InputInvalid
from repobuild.samples.read import read_table
from repobuild.samples.table import Kind


def read(path):
    return read_table(path, path.name)


@pytest.fixture
def csv(tmp_path):
    def write(text, name="s.csv"):
        (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
        return read(tmp_path / name)

    return write


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "-2", "30"], Kind.INTEGER),
        (["1", "2.5", "-3e4"], Kind.NUMBER),
        (["1", "", "3"], Kind.NUMBER),
        (["0.5", "nan", "NA"], Kind.NUMBER),
        (["01234", "90210", "00501"], Kind.TEXT),
        (["1", "2", "x"], Kind.TEXT),
        (["True", "false", "TRUE"], Kind.BOOLEAN),
        (["NA", "DE", "FR"], Kind.TEXT),
        (["inf", "-inf", "1"], Kind.NUMBER),
        (["1_000", "2", "3"], Kind.TEXT),
        (["9223372036854775808", "1", "2"], Kind.NUMBER),
    ],
)
def test_a_csv_column_is_typed_only_as_every_cell_is_written(csv, cells, kind):
    table = csv("c,other\n" + "".join(f"{c},1\n" for c in cells))
    assert table.by_name["c"].kind is kind


def test_cells_of_csv_keep_their_values(csv):
    table = csv('a,b,c\n1,"x, y",\n2,,0.1\n')
    assert table.by_name["a"].values.tolist() == [1, 2]
    assert table.by_name["b"].values.tolist() == ["x, y", ""]
    assert table.by_name["b"].missing.tolist() == [False, True]
    assert np.isnan(table.by_name["c"].values[0])
    assert table.by_name["c"].values[1] == 0.1


def test_a_number_column_of_csv_can_be_taken_as_text(csv):
    column = csv("zip\n90210\n10115\n").by_name["zip"]
    assert column.kind is Kind.INTEGER
    assert column.as_text().values.tolist() == ["90210", "10115"]


def test_the_index_that_pandas_writes_is_left_out_and_told(csv):
    table = csv(",a\n0,1.5\n1,2.5\n")
    assert [c.name for c in table.columns] == ["a"]
    assert "nameless first column" in table.notes[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is empty"),
        ("a,b\n1,2\n3\n", "line 3: 1 cells, the header has 2"),
        ("a,a\n1,2\n", "'a' occurs twice"),
        ("0,1.5\n1,2.5\n", "its first line holds numbers (0, 1.5)"),
        ("a,b\n", "a header and no rows"),
        (b"a\n\xff\xfe\n", "not UTF-8"),
        ('a,b\n"1,2\n', "unexpected end of data"),
    ],
)
def test_broken_csv_is_named(csv, text, words):
    with pytest.raises(InputInvalid) as caught:
        csv(text)
    assert caught.value.code == "samples-unfit"
    assert words in caught.value.render()


def test_tsv_splits_at_tabs(csv):
    assert [c.name for c in csv("a,x\tb\n1\t2\n", "s.tsv").columns] == ["a,x", "b"]


def test_jsonl_keeps_types_and_missing_values(csv):
    table = csv(
        '{"t": "x", "n": 1, "f": 0.5, "b": true, "v": [1.0, 2.0]}\n'
        '{"t": null, "n": 2, "f": null, "b": false, "v": [3.0, 4.0]}\n',
        "s.jsonl",
    )
    kinds = {c.name: c.kind for c in table.columns}
    assert kinds == {
        "t": Kind.TEXT,
        "n": Kind.INTEGER,
        "f": Kind.NUMBER,
        "b": Kind.BOOLEAN,
        "v": Kind.NUMBER,
    }
    assert table.by_name["t"].missing.tolist() == [False, True]
    assert table.by_name["v"].values.shape == (2, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1}\n{"a": \n', "line 2"),
        ('{"a": 1, "a": 2}\n', "line 1: the key 'a' occurs twice"),
        ('{"a": ' + "1" * 5000 + "}\n", "line 1"),
        ("[1, 2]\n", "each line is one object"),
        ('{"a": 1}\n{"a": "x"}\n', "mixes int, str"),
        ('{"a": true}\n{"a": null}\n', "'a'"),
        ("[" * 100_000 + "\n", "line 1"),
    ],
)
def test_broken_jsonl_is_named(csv, text, words):
    with pytest.raises(InputInvalid) as caught:
        csv(text, "s.jsonl")
    assert words in caught.value.render()


def test_parquet_keeps_types_missing_text_and_categories(tmp_path):
    frame = pd.DataFrame(
        {
            "f32": np.array([0.5, 1.5], dtype=np.float32),
            "i": [1, 2],
            "b": [True, False],
            "t": pd.Series(["x", None], dtype=object),
            "c": pd.Categorical(["lo", "hi"], categories=["lo", "mid", "hi"]),
            "d": pd.to_datetime(["2026-01-01", "2026-01-02"]),
        }
    )
    frame.to_parquet(tmp_path / "s.parquet")
    table = read(tmp_path / "s.parquet")
    kinds = [c.kind for c in table.columns]
    assert kinds == [Kind.NUMBER, Kind.INTEGER, Kind.BOOLEAN, Kind.TEXT, Kind.TEXT, Kind.OTHER]
    assert table.by_name["f32"].values.dtype == np.float32
    assert table.by_name["t"].missing.tolist() == [False, True]
    assert table.by_name["c"].categories == ("lo", "mid", "hi")


def test_a_header_that_counts_the_columns_is_one(csv):
    assert [c.name for c in csv("0,1\n5,6\n").columns] == ["0", "1"]


def test_arrays_of_npz_that_are_none_are_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(InputInvalid) as caught:
        read(tmp_path / "t.npz")
    assert "its member 'readme.txt' is no array" in caught.value.render()


def test_samples_in_a_pipe_are_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "s.npy")
    with pytest.raises(InputInvalid, match="no regular file"):
        read(tmp_path / "s.npy")


@pytest.mark.parametrize("name", ["s.parquet", "s.npy", "s.npz"])
def test_garbage_in_a_binary_format_is_named(tmp_path, name):
    (tmp_path / name).write_bytes(b"garbage" * 10)
    with pytest.raises(InputInvalid, match="not a readable"):
        read(tmp_path / name)


def test_an_unknown_ending_lists_the_known_ones(tmp_path):
    (tmp_path / "s.xlsx").write_bytes(b"x")
    with pytest.raises(InputInvalid) as caught:
        read(tmp_path / "s.xlsx")
    assert ".parquet" in caught.value.render()
