"""Locks between processes, pipes and sockets with a name."""

from __future__ import annotations

from harmless.operation import Operation, native

_TRY = """
def try_lock(path, how):
    import fcntl
    with open(path, "r+") as file:
        try:
            getattr(fcntl, how)(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os._exit(7)
"""

ROWS = (
    Operation(
        "flock between two processes",
        _TRY + "import fcntl\n"
        'with open("notes.txt", "r+") as f:\n'
        "    fcntl.flock(f, fcntl.LOCK_EX)\n"
        '    held = in_fork(lambda: try_lock("notes.txt", "flock"))\n'
        'return [held, in_fork(lambda: try_lock("notes.txt", "flock"))]',
    ),
    Operation(
        "lockf between two processes",
        _TRY + "import fcntl\n"
        'with open("notes.txt", "r+") as f:\n'
        "    fcntl.lockf(f, fcntl.LOCK_EX)\n"
        '    held = in_fork(lambda: try_lock("notes.txt", "lockf"))\n'
        'return [held, in_fork(lambda: try_lock("notes.txt", "lockf"))]',
    ),
    Operation(
        "os.lockf on a new file",
        """
        fd = os.open("lock", os.O_RDWR | os.O_CREAT)
        os.lockf(fd, os.F_TLOCK, 0)
        return [in_fork(lambda: os.lockf(os.open("lock", os.O_RDWR), os.F_TLOCK, 0)), names()]
        """,
    ),
    Operation(
        "a lock file made exclusively",
        """
        first = caught(lambda: os.close(os.open("l.lock", os.O_CREAT | os.O_EXCL)))
        return [first, caught(os.open, "l.lock", os.O_CREAT | os.O_EXCL)]
        """,
    ),
    Operation(
        "a lock file seen by a spawned Python",
        """
        write("l.lock", "held")
        return python("import os; print(os.path.exists('l.lock'))")
        """,
    ),
    Operation(
        "filelock",
        """
        import filelock
        with filelock.FileLock("f.lock"):
            write("notes.txt", "locked")
        return read("notes.txt")
        """,
        needs=("filelock",),
    ),
    Operation(
        "a shared lock for reading",
        """
        import fcntl
        with open("notes.txt") as f, open("notes.txt") as g:
            fcntl.flock(f, fcntl.LOCK_SH)
            fcntl.flock(g, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return f.read()
        """,
    ),
    native(
        "flock by a program",
        'return run("flock", "-n", "notes.txt", "echo", "held")',
        needs=("flock",),
        fence="same",
        none="same",
    ),
    native(
        "flock by a program on a new file",
        'return [run("flock", "-n", "new.lock", "echo", "held"), names()]',
        needs=("flock",),
    ),
    Operation(
        "a FIFO",
        """
        os.mkfifo("pipe")
        pid = os.fork()
        if pid == 0:
            with open("pipe", "w") as out:
                out.write("through")
            os._exit(0)
        with open("pipe") as source:
            text = source.read()
        os.waitpid(pid, 0)
        return [text, look("pipe")]
        """,
    ),
    native(
        "a FIFO shared with a program",
        """
        run("mkfifo", "pipe")
        child = subprocess.Popen(["/bin/sh", "-c", "echo through > pipe"])
        with open("pipe") as source:
            text = source.read()
        child.wait()
        return text
        """,
    ),
    Operation("remove a FIFO", 'os.mkfifo("pipe")\nos.unlink("pipe")\nreturn names()'),
    native(
        "a unix socket",
        """
        import socket
        server = socket.socket(socket.AF_UNIX)
        server.bind("sock")
        server.listen()
        client = socket.socket(socket.AF_UNIX)
        client.connect("sock")
        connection, _ = server.accept()
        client.sendall(b"hi")
        return [connection.recv(2).decode(), look("sock")["kind"]]
        """,
    ),
    Operation(
        "an abstract unix socket",
        """
        import socket
        server = socket.socket(socket.AF_UNIX)
        name = f"\\0table-{os.getpid()}"
        server.bind(name)
        server.listen()
        client = socket.socket(socket.AF_UNIX)
        client.connect(name)
        return "connected"
        """,
    ),
    Operation(
        "a unix socket in the temporary folder",
        """
        import socket, tempfile
        folder = tempfile.mkdtemp()
        server = socket.socket(socket.AF_UNIX)
        server.bind(f"{folder}/s")
        server.listen()
        client = socket.socket(socket.AF_UNIX)
        client.connect(f"{folder}/s")
        return "connected"
        """,
    ),
    Operation(
        "loopback",
        """
        import socket
        server = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(server.getsockname())
        connection, _ = server.accept()
        client.sendall(b"hi")
        return connection.recv(2).decode()
        """,
    ),
)
