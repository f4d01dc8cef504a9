"""Temporary files, the home, folders elsewhere, and names that are hard to handle."""

from __future__ import annotations

from harmless.operation import Operation, native

TEMPORARY = (
    Operation(
        "NamedTemporaryFile",
        """
        with tempfile.NamedTemporaryFile("w+") as f:
            f.write("t")
            f.flush()
            return read(f.name)
        """,
    ),
    Operation(
        "NamedTemporaryFile that is renamed",
        """
        with tempfile.NamedTemporaryFile("w", dir="ckpt", delete=False) as f:
            f.write("t")
        os.replace(f.name, "ckpt/best.pt")
        return [names("ckpt"), read("ckpt/best.pt")]
        """,
    ),
    Operation(
        "NamedTemporaryFile here, deleted",
        """
        with tempfile.NamedTemporaryFile(dir=".") as f:
            count = len(names())
        return count - len(names())
        """,
    ),
    Operation(
        "TemporaryFile",
        """
        with tempfile.TemporaryFile() as f:
            f.write(b"t")
            f.seek(0)
            return f.read().decode()
        """,
    ),
    Operation(
        "TemporaryFile here",
        """
        with tempfile.TemporaryFile(dir=".") as f:
            f.write(b"t")
            f.seek(0)
            return [f.read().decode(), names()]
        """,
    ),
    Operation(
        "TemporaryDirectory",
        """
        with tempfile.TemporaryDirectory() as d:
            write(f"{d}/x", "x")
            seen = names(d)
        return [seen, os.path.exists(d)]
        """,
    ),
    Operation(
        "TemporaryDirectory here",
        """
        with tempfile.TemporaryDirectory(dir=".") as d:
            write(f"{d}/x", "x")
            shutil.move(f"{d}/x", "x")
        return names()
        """,
    ),
    Operation(
        "mkstemp here",
        """
        fd, path = tempfile.mkstemp(dir=".")
        os.write(fd, b"m")
        os.close(fd)
        os.replace(path, "notes.txt")
        return look("notes.txt")
        """,
    ),
    Operation(
        "mkdtemp",
        """
        d = tempfile.mkdtemp()
        write(f"{d}/x", "x")
        shutil.copytree(d, "kept")
        return tree("kept")
        """,
    ),
    Operation(
        "mkdtemp here, then renamed",
        """
        d = tempfile.mkdtemp(dir=".")
        write(f"{d}/x", "x")
        os.rename(d, "done")
        return tree("done")
        """,
    ),
    Operation(
        "SpooledTemporaryFile",
        """
        with tempfile.SpooledTemporaryFile(max_size=2) as f:
            f.write(b"spooled")
            f.seek(0)
            return f.read().decode()
        """,
    ),
    Operation("gettempdir", 'return os.path.samefile(tempfile.gettempdir(), os.environ["TMPDIR"])'),
    Operation(
        "TMPDIR is changed",
        """
        os.mkdir("mine")
        os.environ["TMPDIR"] = os.path.abspath("mine")
        tempfile.tempdir = None
        with tempfile.NamedTemporaryFile("w+", delete=False) as f:
            f.write("t")
        return [len(names("mine")), read(f.name)]
        """,
    ),
    Operation(
        "TMPDIR is changed, then a Python child",
        """
        os.mkdir("mine")
        os.environ["TMPDIR"] = os.path.abspath("mine")
        return python("print('ran')")
        """,
    ),
    Operation(
        "TMPDIR is changed, then a process is spawned",
        """
        import multiprocessing
        os.mkdir("mine")
        os.environ["TMPDIR"] = os.path.abspath("mine")
        tempfile.tempdir = None
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            pool.apply(write, ("notes.txt", "spawned"))
        return read("notes.txt")
        """,
    ),
    Operation(
        "HF_HOME is changed, then a Python child",
        """
        os.environ["HF_HOME"] = os.path.abspath("hf")
        os.makedirs("hf/hub")
        child = "open('hf/hub/model.bin', 'w').write('x'); print(open('hf/hub/model.bin').read())"
        return [python(child), read("hf/hub/model.bin")]
        """,
    ),
    Operation(
        "XDG_CACHE_HOME is changed to the data, then a Python child",
        """
        os.environ["XDG_CACHE_HOME"] = str(DATA)
        return [python(f"open({str(DATA / 'set.csv')!r}, 'w').write('x')"), read(DATA / "set.csv")]
        """,
    ),
    Operation(
        "TMPDIR is changed to an ancestor",
        """
        os.environ["TMPDIR"] = os.path.dirname(os.getcwd())
        tempfile.tempdir = None
        shutil.rmtree("ckpt")
        write("notes.txt", "x")
        fd, path = tempfile.mkstemp()
        os.close(fd)
        os.unlink(path)
        return names()
        """,
    ),
    Operation(
        "TMPDIR is changed to the data",
        """
        os.environ["TMPDIR"] = str(DATA)
        tempfile.tempdir = None
        fd, path = tempfile.mkstemp(prefix="t")
        os.close(fd)
        return [len(names(DATA)), os.path.samefile(os.path.dirname(path), DATA)]
        """,
    ),
    native("mktemp", 'name = run("mktemp").strip()\nwrite(name, "x")\nreturn read(name)', fence="same", none="same"),
    Operation(
        "a file of others in the temporary folder",
        """
        write(TMP / "theirs.txt", "mine")
        return read(TMP / "theirs.txt")
        """,
        none="same",
    ),
    Operation(
        "delete what others keep in the temporary folder",
        """
        os.unlink(TMP / "theirs.txt")
        return names(TMP)
        """,
        none="same",
    ),
    Operation(
        "a new file for Python and a program in the temporary folder",
        """
        path = tempfile.mkdtemp() + "/t"
        write(path, "x")
        return run("cat", path)
        """,
    ),
    Operation("write into a shared folder", 'write(SHARED / "mine.txt", "m")\nreturn names(SHARED)'),
    Operation("overwrite in a shared folder", 'write(SHARED / "others.txt", "m")\nreturn look(SHARED / "others.txt")'),
    native(
        "a program writes into a shared folder",
        """
        run("cp", "notes.txt", str(SHARED / "others.txt"))
        return read(SHARED / "others.txt")
        """,
    ),
    Operation(
        "shared memory as files",
        """
        name = f"/dev/shm/table-{os.getpid()}"
        write(name, "x")
        text = read(name)
        os.unlink(name)
        return text
        """,
    ),
    Operation("the null device", 'write("/dev/null", "x")\nreturn read("/dev/null")'),
    Operation("the zero device", 'with open("/dev/zero", "rb") as f:\n    return list(f.read(3))'),
    Operation("process files", 'return [os.path.exists("/proc/self/status"), "Name" in read("/proc/self/status")]'),
)

HOME_AND_DATA = (
    Operation("write a setting in the home", 'write(HOME / ".config/x/settings.json", "{}")\nreturn tree(str(HOME))'),
    Operation(
        "a new folder in the home",
        """
        os.makedirs(HOME / ".mytool/deep")
        write(Path("~/.mytool/deep/f").expanduser(), "x")
        return names(HOME / ".mytool/deep")
        """,
    ),
    Operation("delete in the home", 'shutil.rmtree(HOME / ".config")\nreturn names(HOME)'),
    native("a program writes in the home", 'sh("echo x > ~/.rc")\nreturn names(HOME)'),
    native("a program deletes in the home", 'sh("rm -rf ~/.config")\nreturn names(HOME)'),
    Operation("Path.home", 'return [Path.home() == HOME, os.path.expanduser("~") == str(HOME)]'),
    Operation("write elsewhere", 'write(DATA / "set.csv", "x")\nreturn read(DATA / "set.csv")'),
    Operation(
        "a new file elsewhere",
        """
        write(DATA / "out/../new.csv", "x") if (DATA / "out").mkdir() is None else None
        return names(DATA)
        """,
    ),
    Operation("delete elsewhere", 'shutil.rmtree(DATA / "models")\nreturn names(DATA)'),
    Operation("rename elsewhere, both names", 'os.rename(DATA / "models", DATA / "m2")\nreturn tree(str(DATA))'),
    Operation(
        "replace elsewhere",
        """
        write(DATA / "t", "t")
        os.replace(DATA / "t", DATA / "models/base.bin")
        return tree(str(DATA))
        """,
    ),
    native(
        "a program writes elsewhere",
        """
        run("cp", "notes.txt", str(DATA / "models/base.bin"))
        return tree(str(DATA))
        """,
    ),
    native("a program deletes elsewhere", 'run("rm", "-rf", str(DATA / "models"))\nreturn names(DATA)'),
    Operation("chdir elsewhere", 'os.chdir(DATA)\nwrite("here.txt", "x")\nos.remove("set.csv")\nreturn names()'),
    Operation("write through a chain of parents", 'write("ckpt/../data/../notes.txt", "x")\nreturn read("notes.txt")'),
    Operation("a path with doubled slashes", 'write(".//ckpt///best.pt", "x")\nreturn read("ckpt/best.pt")'),
    Operation("disk space of the home", "return shutil.disk_usage(HOME).free > 0"),
)

NAMES = (
    Operation("a name with spaces", 'write("with space.txt", "w")\nreturn [read("with space.txt"), names()]'),
    Operation(
        "a name with a newline",
        """
        write("two\\nlines", "n")
        os.rename("two\\nlines", "tab\\tname")
        return [names(), read("tab\\tname")]
        """,
    ),
    Operation("a name with quotes", 'write("it\'s \\"quoted\\" $HOME *", "q")\nreturn names()'),
    Operation(
        "a name in unicode", 'write("Gewichte-é-日本.pt", "u")\nreturn [read("Gewichte-é-日本.pt"), len(names())]'
    ),
    Operation(
        "a name that is not UTF-8",
        """
        name = b"bad-\\xff\\xfe"
        with open(name, "wb") as f:
            f.write(b"b")
        found = [it for it in os.listdir(b".") if it.startswith(b"bad")]
        return [found[0].hex(), open(name, "rb").read().decode(), os.fsdecode(name) in os.listdir(".")]
        """,
    ),
    Operation(
        "a name of 255 bytes",
        """
        name = "n" * 255
        write(name, "long")
        os.rename(name, "m" * 255)
        os.unlink("m" * 255)
        write("k" * 255, "x")
        return [name in names(), caught(open, "n" * 256, "w")]
        """,
    ),
    Operation(
        "an old name of 255 bytes is deleted",
        """
        os.unlink("o" * 255)
        return [it for it in names() if it.startswith("ooo")]
        """,
        setup="printf x > $(printf 'o%.0s' $(seq 255))",
        fence="denied",
        none="differs",
    ),
    Operation("a hidden name", 'write(".hidden", "h")\nos.mkdir(".cache")\nwrite(".cache/x", "x")\nreturn names()'),
    Operation(
        "names that a layer may use",
        """
        for name in (".wh.notes.txt", ".hotlap-gone.notes.txt", ".wh..wh..opq"):
            write(name, "x")
        return [names(), read("notes.txt")]
        """,
        none="differs",
        fence="differs",
    ),
    Operation(
        "a path that is too long",
        'return caught(open, "/".join(["d" * 200] * 25), "w")',
        fence="differs",
        none="differs",
    ),
    Operation("an empty path", 'return [caught(open, "", "w"), caught(os.stat, ""), caught(os.mkdir, "")]'),
    Operation("a path with a null byte", 'return [caught(open, "a\\0b", "w"), caught(os.unlink, "a\\0b")]'),
    Operation(
        "a trailing slash",
        'return [caught(open, "notes.txt/", "w"), caught(os.mkdir, "made/"), names("made/")]',
        fence="differs",
        none="differs",
    ),
    native("a program writes a name with a newline", 'run("touch", "a\\nb")\nreturn names()'),
    native(
        "a program writes a name that is not UTF-8",
        """
        subprocess.run([b"touch", b"p-\\xff"], check=True)
        return [it.hex() for it in os.listdir(b".") if it.startswith(b"p-")]
        """,
    ),
)

ROWS = (*TEMPORARY, *HOME_AND_DATA, *NAMES)
