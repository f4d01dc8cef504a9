"""pyarrow, pandas, polars and duckdb."""

from __future__ import annotations

from harmless.operation import library

_TABLE = 'import pyarrow as pa\ntable = pa.table({"a": [1, 2, 3]})\n'
_FRAME = 'import pandas\nframe = pandas.DataFrame({"a": [1, 2, 3]})\n'
_POLARS = 'import polars\nframe = polars.DataFrame({"a": [1, 2, 3]})\n'

ROWS = (
    library(
        "pyarrow",
        "pyarrow write_table",
        _TABLE + "import pyarrow.parquet as pq\n"
        'pq.write_table(table, "t.parquet")\n'
        'return pq.read_table("t.parquet")["a"].to_pylist()',
    ),
    library(
        "pyarrow",
        "pyarrow write_table after makedirs",
        _TABLE + "import pyarrow.parquet as pq\n"
        'os.makedirs("out")\n'
        'pq.write_table(table, "out/t.parquet")\n'
        'return pq.read_table("out/t.parquet")["a"].to_pylist()',
    ),
    library(
        "pyarrow",
        "pyarrow OSFile over a file",
        _TABLE + 'with pa.OSFile("notes.txt", "wb") as sink:\n    sink.write(b"arrow")\nreturn read("notes.txt")',
    ),
    library(
        "pyarrow",
        "pyarrow memory_map",
        _TABLE + 'with pa.memory_map("ckpt/best.pt", "r+") as file:\n'
        '    file.write(b"ARROW")\n'
        'return read("ckpt/best.pt")[:8]',
    ),
    library(
        "pyarrow",
        "pyarrow feather",
        _TABLE + "from pyarrow import feather\n"
        'feather.write_feather(table, "t.feather")\n'
        'return feather.read_table("t.feather")["a"].to_pylist()',
    ),
    library(
        "pyarrow",
        "pyarrow csv",
        _TABLE + 'from pyarrow import csv\ncsv.write_csv(table, "data/train.csv")\nreturn read("data/train.csv")',
    ),
    library(
        "pyarrow",
        "pyarrow write_dataset",
        _TABLE + "import pyarrow.dataset as ds\n"
        'ds.write_dataset(table, "set", format="parquet")\n'
        'return ds.dataset("set").to_table()["a"].to_pylist()',
    ),
    library(
        "pyarrow",
        "pyarrow filesystem deletes",
        """
        from pyarrow import fs
        fs.LocalFileSystem().delete_dir("ckpt")
        return names()
        """,
        fence="denied",
        none="harms",
    ),
    library(
        "pyarrow",
        "pyarrow reads",
        """
        from pyarrow import csv
        return csv.read_csv("data/train.csv").num_rows
        """,
    ),
    library(
        "pyarrow",
        "pyarrow reads what was written",
        """
        from pyarrow import csv
        write("data/train.csv", "a\\n1\\n2\\n3\\n4\\n")
        return csv.read_csv("data/train.csv").num_rows
        """,
    ),
    library(
        "pandas",
        "pandas to_parquet",
        _FRAME + 'frame.to_parquet("p.parquet")\nreturn pandas.read_parquet("p.parquet")["a"].tolist()',
    ),
    library(
        "pandas",
        "pandas to_parquet after makedirs",
        _FRAME + 'os.makedirs("out")\n'
        'frame.to_parquet("out/p.parquet")\n'
        'return pandas.read_parquet("out/p.parquet")["a"].tolist()',
    ),
    library(
        "pandas",
        "pandas to_parquet over a file",
        _FRAME + 'frame.to_parquet("notes.txt")\nreturn pandas.read_parquet("notes.txt")["a"].tolist()',
    ),
    library(
        "pandas",
        "pandas to_csv",
        _FRAME + 'frame.to_csv("data/train.csv", index=False)\nreturn pandas.read_csv("data/train.csv")["a"].tolist()',
    ),
    library(
        "pandas",
        "pandas to_csv, appended",
        _FRAME + 'frame.to_csv("log.txt", mode="a", header=False)\nreturn read("log.txt")',
    ),
    library(
        "pandas",
        "pandas to_pickle",
        _FRAME + 'frame.to_pickle("f.pkl")\nreturn pandas.read_pickle("f.pkl")["a"].tolist()',
    ),
    library(
        "pandas",
        "pandas to_feather",
        _FRAME + 'frame.to_feather("f.feather")\nreturn pandas.read_feather("f.feather")["a"].tolist()',
    ),
    library(
        "tables",
        "pandas to_hdf",
        _FRAME + 'frame.to_hdf("f.h5", key="k")\nreturn pandas.read_hdf("f.h5", "k")["a"].tolist()',
    ),
    library(
        "pandas",
        "pandas to_sql",
        _FRAME + "import sqlite3\n"
        'db = sqlite3.connect("store.db")\n'
        'frame.to_sql("f", db)\n'
        'return pandas.read_sql("select a from f", db)["a"].tolist()',
    ),
    library(
        "polars",
        "polars write_parquet",
        _POLARS + 'frame.write_parquet("p.parquet")\nreturn polars.read_parquet("p.parquet")["a"].to_list()',
    ),
    library(
        "polars",
        "polars write_parquet after makedirs",
        _POLARS + 'os.makedirs("out")\n'
        'frame.write_parquet("out/p.parquet")\n'
        'return polars.read_parquet("out/p.parquet")["a"].to_list()',
    ),
    library(
        "polars",
        "polars write_csv over a file",
        _POLARS + 'frame.write_csv("data/train.csv")\nreturn read("data/train.csv")',
    ),
    library(
        "polars",
        "polars sink_parquet",
        _POLARS + 'frame.lazy().sink_parquet("s.parquet")\nreturn polars.read_parquet("s.parquet")["a"].to_list()',
    ),
    library(
        "polars",
        "polars scan_csv",
        """
        import polars
        return polars.scan_csv("data/train.csv").collect().height
        """,
    ),
    library(
        "duckdb",
        "duckdb database",
        """
        import duckdb
        with duckdb.connect("d.duckdb") as db:
            db.execute("create table t as select 1 as a")
        with duckdb.connect("d.duckdb") as db:
            return db.execute("select a from t").fetchall()[0][0]
        """,
    ),
    library(
        "duckdb",
        "duckdb COPY",
        """
        import duckdb
        duckdb.sql("copy (select 7 as a) to 'data/train.csv' (format csv)")
        return read("data/train.csv")
        """,
        fence="denied",
        none="harms",
    ),
    library(
        "duckdb",
        "duckdb COPY parquet",
        """
        import duckdb
        duckdb.sql("copy (select 7 as a) to 'q.parquet'")
        return duckdb.sql("select a from 'q.parquet'").fetchall()[0][0]
        """,
        fence="denied",
        none="harms",
    ),
    library(
        "duckdb",
        "duckdb reads",
        """
        import duckdb
        return duckdb.sql("select count(*) from 'data/train.csv'").fetchall()[0][0]
        """,
    ),
)
