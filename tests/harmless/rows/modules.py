"""What the standard library writes."""

from __future__ import annotations

from harmless.operation import Operation, native

ROWS = (
    Operation(
        "csv",
        """
        import csv
        with open("data/train.csv", "a", newline="") as file:
            csv.writer(file).writerow(["7", "8"])
        with open("data/train.csv", newline="") as file:
            return list(csv.reader(file))
        """,
    ),
    Operation(
        "json",
        """
        with open("r.json", "w") as f:
            json.dump({"a": 1}, f)
        with open("r.json") as f:
            return json.load(f)
        """,
    ),
    Operation(
        "pickle over a checkpoint",
        """
        import pickle
        with open("ckpt/best.pt", "wb") as file:
            pickle.dump({"step": 3}, file)
        with open("ckpt/best.pt", "rb") as file:
            return pickle.load(file)
        """,
    ),
    Operation(
        "configparser",
        """
        import configparser
        config = configparser.ConfigParser()
        config["a"] = {"b": "c"}
        with open(HOME / ".config/x/app.ini", "w") as file:
            config.write(file)
        again = configparser.ConfigParser()
        again.read(HOME / ".config/x/app.ini")
        return again["a"]["b"]
        """,
    ),
    Operation(
        "zipfile",
        """
        import zipfile
        with zipfile.ZipFile("a.zip", "w") as archive:
            archive.write("notes.txt")
        with zipfile.ZipFile("a.zip", "a") as archive:
            archive.writestr("more.txt", "more")
        zipfile.ZipFile("a.zip").extractall("out")
        return tree("out")
        """,
    ),
    Operation(
        "tarfile",
        """
        import tarfile
        with tarfile.open("a.tar.gz", "w:gz") as archive:
            archive.add("ckpt")
        shutil.rmtree("ckpt")
        with tarfile.open("a.tar.gz") as archive:
            archive.extractall(".", filter="data")
        return tree("ckpt")
        """,
    ),
    Operation(
        "gzip module",
        """
        import gzip
        with gzip.open("n.gz", "wt") as f:
            f.write("z")
        return gzip.open("n.gz", "rt").read()
        """,
    ),
    Operation(
        "bz2 module",
        """
        import bz2
        with bz2.open("n.bz2", "wt") as f:
            f.write("z")
        return bz2.open("n.bz2", "rt").read()
        """,
    ),
    Operation(
        "lzma module",
        """
        import lzma
        with lzma.open("n.xz", "wt") as f:
            f.write("z")
        return lzma.open("n.xz", "rt").read()
        """,
    ),
    Operation(
        "make_archive",
        """
        shutil.make_archive("all", "zip", "ckpt")
        shutil.unpack_archive("all.zip", "out")
        return tree("out")
        """,
    ),
    Operation(
        "shelve",
        """
        import shelve
        import dbm.dumb
        with shelve.Shelf(dbm.dumb.open("s", "c")) as shelf:
            shelf["a"] = [1, 2]
        with shelve.Shelf(dbm.dumb.open("s")) as shelf:
            return dict(shelf)
        """,
        fence="same",
        none="same",
    ),
    Operation(
        "dbm.dumb",
        """
        import dbm.dumb
        with dbm.dumb.open("d", "c") as d:
            d["k"] = "v"
        return dbm.dumb.open("d")["k"].decode()
        """,
    ),
    native(
        "dbm.gnu",
        'import dbm.gnu\nwith dbm.gnu.open("g", "c") as d:\n    d["k"] = "v"\nreturn dbm.gnu.open("g")["k"].decode()',
        needs=("_gdbm",),
    ),
    native(
        "dbm.ndbm",
        """
        import dbm.ndbm
        with dbm.ndbm.open("n", "c") as d:
            d["k"] = "v"
        return dbm.ndbm.open("n")["k"].decode()
        """,
        needs=("_dbm",),
    ),
    Operation(
        "fileinput in place",
        """
        import fileinput
        with fileinput.input("notes.txt", inplace=True) as lines:
            for line in lines:
                print(line.upper(), end="")
        return [read("notes.txt"), names()]
        """,
    ),
    Operation(
        "fileinput in place with a backup",
        """
        import fileinput
        with fileinput.input("notes.txt", inplace=True, backup=".bak") as lines:
            for line in lines:
                print(line.upper(), end="")
        return [read("notes.txt"), read("notes.txt.bak")]
        """,
    ),
    Operation(
        "logging to a file",
        """
        import logging
        handler = logging.FileHandler("log.txt")
        logging.getLogger("a").addHandler(handler)
        logging.getLogger("a").error("bad")
        handler.close()
        return read("log.txt")
        """,
    ),
    Operation(
        "logging with rotation",
        """
        import logging.handlers
        handler = logging.handlers.RotatingFileHandler("log.txt", maxBytes=20, backupCount=2)
        logger = logging.getLogger("b")
        logger.addHandler(handler)
        for number in range(6):
            logger.error("message %d", number)
        handler.close()
        return {name: read(name) for name in names() if name.startswith("log")}
        """,
    ),
    Operation(
        "logging with rotation by time",
        """
        import logging.handlers
        handler = logging.handlers.TimedRotatingFileHandler("log.txt", when="S", backupCount=1)
        handler.doRollover()
        handler.emit(logging.LogRecord("n", 40, "p", 1, "after", None, None))
        handler.close()
        return [read("log.txt"), len([name for name in names() if name.startswith("log")])]
        """,
    ),
    Operation(
        "logging from two processes",
        """
        def log():
            with open("log.txt", "a") as file:
                file.write("child\\n")
        status = in_fork(log)
        log()
        return [status, read("log.txt")]
        """,
    ),
    Operation(
        "plistlib",
        """
        import plistlib
        with open("p", "wb") as f:
            plistlib.dump({"a": 1}, f)
        return plistlib.load(open("p", "rb"))
        """,
    ),
    Operation(
        "wave",
        """
        import wave
        with wave.open("a.wav", "wb") as out:
            out.setparams((1, 2, 8000, 0, "NONE", "NONE"))
            out.writeframes(bytes(100))
        return look("a.wav")["size"]
        """,
    ),
    Operation(
        "xml.etree",
        'import xml.etree.ElementTree as E\nE.ElementTree(E.Element("a")).write("a.xml")\nreturn read("a.xml")',
    ),
    Operation(
        "cProfile",
        """
        import cProfile
        p = cProfile.Profile()
        p.runcall(len, "a")
        p.dump_stats("p.prof")
        return look("p.prof")["size"] > 0
        """,
    ),
    Operation(
        "compileall",
        """
        import py_compile
        write("module.py", "X = 1")
        py_compile.compile("module.py", cfile="module.pyc")
        return [names(), os.path.getsize("module.pyc") > 0]
        """,
    ),
    Operation(
        "import what was written",
        'write("made_here.py", "X = 41")\nsys.path.insert(0, ".")\nimport made_here\nreturn made_here.X',
    ),
    Operation(
        "runpy of what was written",
        """
        import runpy
        write("made.py", "X = 42")
        return runpy.run_path("made.py")["X"]
        """,
    ),
    Operation(
        "redirect_stdout",
        """
        import contextlib
        with open("o", "w") as f, contextlib.redirect_stdout(f):
            print("out")
        return read("o")
        """,
    ),
    # It waits for all that the machine, and others who share it, have yet to write.
    Operation("os.sync", 'write("notes.txt", "synced")\nos.sync()\nreturn read("notes.txt")', longest_seconds=240.0),
    Operation(
        "fsync of a folder",
        'write("f", "x")\nfd = os.open(".", os.O_RDONLY)\nos.fsync(fd)\nos.close(fd)\nreturn read("f")',
    ),
    Operation(
        "write, fsync and replace",
        """
        with open("ckpt/best.pt.tmp", "wb") as file:
            file.write(b"atomic")
            file.flush()
            os.fsync(file.fileno())
        os.replace("ckpt/best.pt.tmp", "ckpt/best.pt")
        return tree("ckpt")
        """,
    ),
)
