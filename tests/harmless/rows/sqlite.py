"""SQLite databases, in every way to open one."""

from __future__ import annotations

from harmless.operation import Operation, native

_SHOW = 'return [it[0] for it in db.execute("select a from t order by a")]'

ROWS = (
    Operation(
        "sqlite3.connect, insert",
        f"import sqlite3\n"
        f'db = sqlite3.connect("store.db")\n'
        f'db.execute("insert into t values (3)")\n'
        f"db.commit()\n"
        f"{_SHOW}",
        none="same",
    ),
    Operation("sqlite3.connect, select", f'import sqlite3\ndb = sqlite3.connect("store.db")\n{_SHOW}'),
    Operation(
        "a new database",
        f"import sqlite3\n"
        f'db = sqlite3.connect("new.db")\n'
        f'db.execute("create table t(a)")\n'
        f'db.execute("insert into t values (1)")\n'
        f"db.commit()\n"
        f"{_SHOW}",
        none="same",
    ),
    Operation(
        "a database seen by another connection",
        f"import sqlite3\n"
        f'with sqlite3.connect("store.db") as one:\n'
        f'    one.execute("delete from t where a = 1")\n'
        f"one.close()\n"
        f'db = sqlite3.connect("store.db")\n'
        f"{_SHOW}",
    ),
    Operation(
        "roll back",
        f'import sqlite3\ndb = sqlite3.connect("store.db")\ndb.execute("delete from t")\ndb.rollback()\n{_SHOW}',
    ),
    Operation(
        "a database in memory",
        f"import sqlite3\n"
        f'db = sqlite3.connect(":memory:")\n'
        f'db.execute("create table t(a)")\n'
        f'db.execute("insert into t values (1)")\n'
        f"{_SHOW}",
    ),
    Operation(
        "a database by pathlib",
        f"import sqlite3\n"
        f'db = sqlite3.connect(Path("store.db"))\n'
        f'db.execute("insert into t values (9)")\n'
        f"db.commit()\n"
        f"{_SHOW}",
    ),
    Operation(
        "a database elsewhere",
        f"import sqlite3\n"
        f'shutil.copy("store.db", DATA / "s.db")\n'
        f'db = sqlite3.connect(DATA / "s.db")\n'
        f'db.execute("insert into t values (9)")\n'
        f"db.commit()\n"
        f"{_SHOW}",
    ),
    Operation(
        "vacuum",
        f'import sqlite3\ndb = sqlite3.connect("store.db", isolation_level=None)\ndb.execute("vacuum")\n{_SHOW}',
    ),
    Operation(
        "journal in WAL mode",
        f"import sqlite3\n"
        f'db = sqlite3.connect("store.db")\n'
        f'mode = db.execute("pragma journal_mode=wal").fetchone()[0]\n'
        f'db.execute("insert into t values (5)")\n'
        f"db.commit()\n"
        f'assert mode == "wal"\n'
        f"{_SHOW}",
    ),
    Operation(
        "WAL mode with two connections",
        f"import sqlite3\n"
        f'one = sqlite3.connect("store.db")\n'
        f'one.execute("pragma journal_mode=wal")\n'
        f'one.execute("insert into t values (5)")\n'
        f"one.commit()\n"
        f'db = sqlite3.connect("store.db")\n'
        f"{_SHOW}",
    ),
    Operation(
        "a database in two processes",
        f"import sqlite3\n"
        f"def insert():\n"
        f'    with sqlite3.connect("store.db") as child:\n'
        f'        child.execute("insert into t values (8)")\n'
        f"    child.close()\n"
        f"assert in_fork(insert) == 0\n"
        f'db = sqlite3.connect("store.db")\n'
        f"{_SHOW}",
    ),
    Operation(
        "backup into a file",
        f'import sqlite3\ndb = sqlite3.connect("copy.db")\nsqlite3.connect("store.db").backup(db)\n{_SHOW}',
    ),
    Operation(
        "a locked database",
        """
        import sqlite3
        one = sqlite3.connect("store.db")
        one.execute("begin exclusive")
        return caught(sqlite3.connect("store.db", timeout=0).execute, "insert into t values (1)")
        """,
    ),
    native(
        "a database by address",
        f"import sqlite3\n"
        f'db = sqlite3.connect("file:store.db", uri=True)\n'
        f'db.execute("insert into t values (4)")\n'
        f"db.commit()\n"
        f"{_SHOW}",
        fence="same",
        none="same",
    ),
    native(
        "a new database by address",
        f"import sqlite3\n"
        f'db = sqlite3.connect("file:n.db?mode=rwc", uri=True)\n'
        f'db.execute("create table t(a)")\n'
        f"db.commit()\n"
        f"{_SHOW}",
        fence="same",
        none="same",
    ),
    Operation(
        "a database by address, read only",
        f'import sqlite3\ndb = sqlite3.connect("file:store.db?mode=ro", uri=True)\n{_SHOW}',
    ),
    native(
        "ATTACH",
        """
        import sqlite3
        db = sqlite3.connect(":memory:")
        db.execute("attach 'store.db' as s")
        db.execute("insert into s.t values (6)")
        db.commit()
        return len(db.execute("select * from s.t").fetchall())
        """,
    ),
    native(
        "ATTACH a new database",
        """
        import sqlite3
        db = sqlite3.connect(":memory:")
        db.execute("attach 'n.db' as s")
        db.execute("create table s.t(a)")
        return names()
        """,
    ),
    native(
        "sqlite3.Connection",
        f"import sqlite3\n"
        f'db = sqlite3.Connection("store.db")\n'
        f'db.execute("insert into t values (7)")\n'
        f"db.commit()\n"
        f"{_SHOW}",
        fence="same",
        none="same",
    ),
    native(
        "VACUUM INTO",
        """
        import sqlite3
        sqlite3.connect("file:store.db?mode=ro", uri=True).execute("vacuum into 'v.db'")
        return os.path.exists("v.db")
        """,
    ),
    native(
        "sqlite3 as a program",
        'return run("sqlite3", "store.db", "insert into t values (3); select count(*) from t")',
        needs=("sqlite3",),
    ),
    native(
        "sqlite3 by a child",
        """
        return python(
            '''
            import sqlite3
            db = sqlite3.connect("store.db")
            db.execute("delete from t")
            db.commit()
            print(db.execute("select count(*) from t").fetchone())
            ''',
            "-I",
        )
        """,
        needs=("sqlite3",),
    ),
)
