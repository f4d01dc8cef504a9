"""Modes, owners, times and extended attributes, by Python and by other programs."""

from __future__ import annotations

from harmless.operation import Operation, native

_ATTRIBUTE = "setfattr -n user.origin -v theirs tagged.txt"

ROWS = (
    Operation("chmod", 'os.chmod("notes.txt", 0o600)\nreturn look("notes.txt")'),
    Operation("chmod a new file", 'write("new", "x")\nos.chmod("new", 0o755)\nreturn look("new")'),
    Operation("chmod a folder", 'os.chmod("ckpt", 0o700)\nreturn look("ckpt")', fence="differs", none="differs"),
    Operation("chmod through a link", 'os.chmod("to_notes", 0o640)\nreturn look("notes.txt")'),
    Operation("pathlib chmod", 'Path("run.sh").chmod(0o700)\nreturn look("run.sh")'),
    Operation("chmod back", 'os.chmod("notes.txt", 0o600)\nos.chmod("notes.txt", 0o644)\nreturn look("notes.txt")'),
    Operation(
        "chmod and then write",
        """
        os.chmod("read_only.txt", 0o644)
        write("read_only.txt", "now")
        return look("read_only.txt")
        """,
    ),
    Operation("write a read-only file", 'return [caught(open, "read_only.txt", "w"), look("read_only.txt")["mode"]]'),
    Operation("delete a read-only file", 'os.unlink("read_only.txt")\nreturn names()'),
    Operation(
        "replace a read-only file",
        """
        write("t", "t")
        os.replace("t", "read_only.txt")
        return look("read_only.txt")
        """,
    ),
    Operation(
        "write into a folder without permission",
        'return caught(write, "closed/new", "x") == caught(os.mkdir, "closed/dir")',
    ),
    Operation(
        "delete in a folder without permission", 'return [caught(os.unlink, "closed/inside.txt"), names("closed")]'
    ),
    Operation(
        "a umask",
        """
        os.umask(0o077)
        write("private", "x")
        os.mkdir("own")
        return [look("private")["mode"], look("own")["mode"]]
        """,
    ),
    Operation(
        "os.access",
        """
        os.chmod("notes.txt", 0o400)
        asked = (("notes.txt", os.R_OK), ("run.sh", os.X_OK), ("notes.txt", os.X_OK), ("no", os.F_OK))
        return [os.access(path, mode) for path, mode in asked]
        """,
    ),
    Operation(
        "chown to oneself",
        """
        os.chown("notes.txt", os.getuid(), os.getgid())
        return os.stat("notes.txt").st_uid == os.getuid()
        """,
    ),
    Operation(
        "shutil.chown",
        """
        shutil.chown("notes.txt", os.getuid())
        return os.stat("notes.txt").st_uid == os.getuid()
        """,
    ),
    Operation(
        "chown a new file",
        """
        write("new", "x")
        os.chown("new", os.getuid(), -1)
        return os.stat("new").st_uid == os.getuid()
        """,
    ),
    Operation(
        "files belong to the script's user",
        """
        write("new", "x")
        return [os.stat(it).st_uid == os.getuid() for it in ("new", "notes.txt", ".")]
        """,
    ),
    Operation(
        "utime",
        """
        os.utime("notes.txt", (1, 2))
        return [os.stat("notes.txt").st_atime, os.stat("notes.txt").st_mtime]
        """,
    ),
    Operation(
        "utime in nanoseconds",
        """
        os.utime("notes.txt", ns=(5, 10**9 + 7))
        return os.stat("notes.txt").st_mtime_ns
        """,
    ),
    Operation(
        "utime of a folder",
        'os.utime("ckpt", (3, 4))\nreturn os.stat("ckpt").st_mtime',
        fence="differs",
        none="differs",
    ),
    Operation(
        "utime of a link",
        """
        os.utime("to_notes", (3, 4), follow_symlinks=False)
        return [os.lstat("to_notes").st_mtime, os.stat("notes.txt").st_mtime > 1000]
        """,
    ),
    Operation(
        "pathlib touch of an existing file",
        """
        os.utime("notes.txt", (1, 1))
        Path("notes.txt").touch()
        return os.stat("notes.txt").st_mtime > 1000
        """,
    ),
    Operation("copystat", 'shutil.copystat("run.sh", "notes.txt")\nreturn look("notes.txt")'),
    Operation("copymode", 'shutil.copymode("run.sh", "notes.txt")\nreturn look("notes.txt")["mode"]'),
    Operation("setxattr", 'os.setxattr("notes.txt", "user.note", b"mine")\nreturn attributes("notes.txt")'),
    Operation(
        "setxattr of a new file",
        """
        write("new", "x")
        os.setxattr("new", "user.note", b"mine")
        return attributes("new")
        """,
    ),
    Operation(
        "setxattr of a folder",
        'os.setxattr("ckpt", "user.note", b"mine")\nreturn attributes("ckpt")',
        fence="differs",
        none="differs",
    ),
    Operation("getxattr of what was there", 'return attributes("tagged.txt")'),
    Operation(
        "setxattr over what was there",
        """
        os.setxattr("tagged.txt", "user.origin", b"mine")
        return attributes("tagged.txt")
        """,
    ),
    Operation(
        "removexattr",
        'os.removexattr("tagged.txt", "user.origin")\nreturn attributes("tagged.txt")',
        fence="denied",
        none="differs",
    ),
    Operation(
        "attributes stay after a write",
        'open("tagged.txt", "a").write("x")\nreturn attributes("tagged.txt")',
        fence="differs",
        none="differs",
    ),
    Operation(
        "attributes move with a rename",
        'os.rename("tagged.txt", "t2")\nreturn attributes("t2")',
        fence="differs",
        none="differs",
    ),
    Operation("copy2 copies attributes", 'shutil.copy2("tagged.txt", "t2")\nreturn attributes("t2")'),
    Operation(
        "setxattr by descriptor",
        """
        fd = os.open("notes.txt", os.O_RDONLY)
        os.setxattr(fd, "user.note", b"fd")
        return attributes("notes.txt")
        """,
        fence="gap",
        none="harms",
    ),
    Operation("the mode stays after a write", 'open("run.sh", "a").write("# more")\nreturn look("run.sh")["mode"]'),
    Operation(
        "an executable that was written",
        """
        write("go.sh", "#!/bin/sh\\necho went\\n")
        os.chmod("go.sh", 0o755)
        return run("./go.sh")
        """,
    ),
    native("chmod by a program", 'run("chmod", "600", "notes.txt")\nreturn look("notes.txt")', fence="gap"),
    native("chmod -R by a program", 'run("chmod", "-R", "u+x,go=", "ckpt")\nreturn tree("ckpt")', fence="gap"),
    native(
        "chown by a program",
        """
        run("chown", str(os.getuid()), "notes.txt")
        return os.stat("notes.txt").st_uid == os.getuid()
        """,
        fence="same",
        none="same",
    ),
    native(
        "touch by a program",
        """
        run("touch", "-d", "@5", "notes.txt")
        return os.stat("notes.txt").st_mtime
        """,
        fence="gap",
    ),
    native(
        "touch -c of a file that is only read",
        """
        run("touch", "-h", "-d", "@5", "to_notes")
        return os.lstat("to_notes").st_mtime
        """,
        fence="gap",
    ),
    native("touch of a new file by a program", 'run("touch", "made")\nreturn names()'),
    native(
        "setxattr by a child",
        """
        python("import os; os.setxattr('notes.txt', 'user.note', b'child')", "-I", "-S")
        return attributes("notes.txt")
        """,
        fence="gap",
    ),
    native(
        "utime by a child",
        """
        python("import os; os.utime('notes.txt', (1, 1))", "-I", "-S")
        return os.stat("notes.txt").st_mtime
        """,
        fence="gap",
    ),
    native("chmod by ctypes", 'libc("chmod", b"notes.txt", 0o600)\nreturn look("notes.txt")', fence="gap"),
)
