"""Files by descriptor, around Python's ``open``, and by the paths of ``/proc``."""

from __future__ import annotations

from harmless.operation import Operation, native

ROWS = (
    Operation(
        "os.open and os.write",
        """
        fd = os.open("notes.txt", os.O_WRONLY | os.O_TRUNC)
        os.write(fd, b"low")
        os.close(fd)
        return look("notes.txt")
        """,
    ),
    Operation(
        "os.open with O_EXCL",
        'os.close(os.open("x", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))\n'
        'return [look("x"), caught(os.open, "x", os.O_CREAT | os.O_EXCL | os.O_WRONLY)]',
    ),
    Operation(
        "os.open with O_NOFOLLOW",
        'return [caught(os.open, "to_notes", os.O_WRONLY | os.O_NOFOLLOW), read("notes.txt")]',
    ),
    Operation(
        "os.open with O_APPEND",
        """
        fd = os.open("log.txt", os.O_WRONLY | os.O_APPEND)
        os.write(fd, b"more")
        os.close(fd)
        return read("log.txt")
        """,
    ),
    Operation(
        "pwrite and pread",
        'fd = os.open("ckpt/best.pt", os.O_RDWR)\nos.pwrite(fd, b"####", 5)\nreturn os.pread(fd, 12, 0).decode()',
    ),
    Operation(
        "writev",
        'fd = os.open("v", os.O_RDWR | os.O_CREAT)\nos.writev(fd, [b"a", b"bc"])\nos.fsync(fd)\nreturn read("v")',
    ),
    Operation(
        "ftruncate",
        'fd = os.open("notes.txt", os.O_RDWR)\nos.ftruncate(fd, 4)\nos.close(fd)\nreturn look("notes.txt")',
    ),
    Operation(
        "posix_fallocate",
        'fd = os.open("notes.txt", os.O_RDWR)\nos.posix_fallocate(fd, 0, 5000)\nreturn os.fstat(fd).st_size',
    ),
    Operation(
        "copy_file_range",
        """
        source = os.open("ckpt/best.pt", os.O_RDONLY)
        target = os.open("notes.txt", os.O_RDWR | os.O_TRUNC)
        os.copy_file_range(source, target, 10)
        return read("notes.txt")
        """,
    ),
    Operation(
        "sendfile into a file",
        """
        source = os.open("ckpt/best.pt", os.O_RDONLY)
        target = os.open("notes.txt", os.O_RDWR | os.O_TRUNC)
        os.sendfile(target, source, 0, 12)
        return read("notes.txt")
        """,
    ),
    Operation(
        "splice into a file",
        """
        out, into = os.pipe()
        os.write(into, b"through a pipe")
        target = os.open("notes.txt", os.O_RDWR | os.O_TRUNC)
        os.splice(out, target, 14)
        return read("notes.txt")
        """,
    ),
    Operation(
        "dup2 of an open file",
        """
        fd = os.open("notes.txt", os.O_RDWR | os.O_TRUNC)
        other = os.dup2(fd, 40)
        os.write(other, b"twin")
        return read("notes.txt")
        """,
    ),
    Operation(
        "an anonymous file that gets a name",
        """
        fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
        os.write(fd, b"anonymous")
        root = os.open("/", os.O_RDONLY)
        os.link(f"/proc/self/fd/{fd}", "named", src_dir_fd=root, follow_symlinks=True)
        return look("named")
        """,
        none="differs",
        fence="denied",
    ),
    Operation(
        "memfd and sendfile",
        """
        fd = os.memfd_create("weights")
        os.write(fd, b"in memory")
        with open("out.bin", "wb") as out:
            os.sendfile(out.fileno(), fd, 0, 9)
        return read("out.bin")
        """,
    ),
    Operation(
        "open below a folder's descriptor",
        """
        folder = os.open("ckpt", os.O_RDONLY | os.O_DIRECTORY)
        fd = os.open("best.pt", os.O_WRONLY | os.O_TRUNC, dir_fd=folder)
        os.write(fd, b"by descriptor")
        return [look("ckpt/best.pt"), os.stat("best.pt", dir_fd=folder).st_size]
        """,
    ),
    Operation(
        "change names below a folder's descriptor",
        """
        folder = os.open("ckpt", os.O_RDONLY | os.O_DIRECTORY)
        os.mkdir("sub", dir_fd=folder)
        os.rename("best.pt", "sub/best.pt", src_dir_fd=folder, dst_dir_fd=folder)
        os.unlink("last.pt", dir_fd=folder)
        os.symlink("sub", "link", dir_fd=folder)
        return [tree("ckpt"), sorted(os.listdir(folder))]
        """,
    ),
    Operation(
        "fchmod",
        'fd = os.open("notes.txt", os.O_RDONLY)\nos.fchmod(fd, 0o600)\nreturn look("notes.txt")',
        fence="gap",
        none="harms",
    ),
    Operation(
        "fchmod of a file open for writing",
        'fd = os.open("notes.txt", os.O_RDWR)\nos.fchmod(fd, 0o600)\nreturn look("notes.txt")',
    ),
    Operation(
        "utime by descriptor",
        'fd = os.open("notes.txt", os.O_RDONLY)\nos.utime(fd, (5, 5))\nreturn os.stat("notes.txt").st_mtime',
        fence="gap",
        none="harms",
    ),
    Operation(
        "chmod by descriptor of a folder",
        'fd = os.open("ckpt", os.O_RDONLY)\nos.chmod(fd, 0o700)\nreturn oct(os.stat("ckpt").st_mode)',
        fence="gap",
        none="harms",
    ),
    native(
        "io.FileIO on a new file",
        'import io\nio.FileIO("new", "w").write(b"x")\nreturn look("new")',
        fence="same",
        none="same",
    ),
    native(
        "io.FileIO on an existing file",
        """
        import io
        io.FileIO("notes.txt", "w").write(b"x")
        return look("notes.txt")
        """,
        fence="same",
        none="same",
    ),
    native(
        "_io.open",
        'import _io\n_io.open("notes.txt", "w").write("x")\nreturn look("notes.txt")',
        fence="same",
        none="same",
    ),
    native(
        "posix.open",
        """
        import posix
        fd = posix.open("notes.txt", os.O_WRONLY | os.O_TRUNC)
        posix.write(fd, b"x")
        return look("notes.txt")
        """,
        fence="same",
        none="same",
    ),
    native(
        "posix.unlink",
        'import posix\nposix.unlink("notes.txt")\nreturn names()',
        fence="same",
        none="same",
    ),
    native(
        "posix.rename",
        'import posix\nposix.rename("notes.txt", "moved.txt")\nreturn names()',
        fence="same",
        none="same",
    ),
    native(
        "posix.mkdir",
        'import posix\nposix.mkdir("made")\nreturn names()',
        fence="same",
        none="same",
    ),
    native("ctypes creat", 'fd = libc("creat", b"notes.txt", 0o644)\nos.write(fd, b"c")\nreturn look("notes.txt")'),
    native("ctypes unlink", 'libc("unlink", b"ckpt/best.pt")\nreturn names("ckpt")'),
    native(
        "ctypes fopen",
        """
        library = ctypes.CDLL(None)
        library.fopen.restype = ctypes.c_void_p
        file = library.fopen(b"notes.txt", b"w")
        if not file:
            raise OSError("fopen failed")
        library.fputs(b"by fopen", ctypes.c_void_p(file))
        library.fclose(ctypes.c_void_p(file))
        return read("notes.txt")
        """,
    ),
    Operation(
        "through /proc/self/cwd",
        'write("/proc/self/cwd/notes.txt", "cwd")\nreturn [read("notes.txt"), read("/proc/self/cwd/notes.txt")]',
        fence="denied",
        none="harms",
    ),
    Operation(
        "a new file through /proc/self/cwd",
        'write("/proc/self/cwd/new.txt", "cwd")\nreturn [read("new.txt"), names()]',
        fence="denied",
        none="harms",
    ),
    Operation(
        "delete through /proc/self/cwd",
        'shutil.rmtree("/proc/self/cwd/ckpt")\nreturn names()',
        fence="denied",
        none="differs",
    ),
    Operation(
        "through /proc/self/fd of a folder",
        'fd = os.open("ckpt", os.O_RDONLY)\nwrite(f"/proc/self/fd/{fd}/best.pt", "x")\nreturn look("ckpt/best.pt")',
        fence="denied",
        none="harms",
    ),
    Operation(
        "reopen through /proc/self/fd",
        'fd = os.open("notes.txt", os.O_RDONLY)\nwrite(f"/proc/self/fd/{fd}", "again")\nreturn look("notes.txt")',
        fence="denied",
        none="harms",
    ),
    Operation(
        "reopen through /dev/fd",
        'fd = os.open("notes.txt", os.O_RDONLY)\nwrite(f"/dev/fd/{fd}", "again")\nreturn look("notes.txt")',
        fence="denied",
        none="harms",
    ),
    Operation(
        "through /proc/self/root",
        'write("/proc/self/root" + os.path.abspath("notes.txt"), "root")\nreturn read("notes.txt")',
        fence="denied",
        none="harms",
    ),
)
