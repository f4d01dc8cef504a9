"""Writes that go around the overlay, that are refused, or that find no space, and how everything is restored."""

from __future__ import annotations

from desk import Desk


def test_a_writer_that_goes_around_is_named(desk: Desk) -> None:
    desk.run("""
        import os
        original = type(open(os.devnull, "rb", 0))
        with original("around.txt", "w") as file:
            file.write(b"x")
    """)
    assert desk.written == {str(desk.work / "around.txt"): False}


def test_what_may_not_be_written_fails_as_it_would(desk: Desk) -> None:
    desk.give(d__a_txt="x")
    seen = desk.run("""
        import os
        def failing(function, *arguments):
            try:
                function(*arguments)
            except OSError as failure:
                print(type(failure).__name__, failure.filename, failure.filename2)
        failing(open, "missing/a.txt", "w")
        failing(open, "d", "w")
        failing(open, "d/a.txt", "x")
        failing(os.mkdir, "d")
        failing(os.rmdir, "d")
        failing(os.rename, "nothing", "something")
        failing(os.listdir, "d/a.txt")
        failing(os.stat, "nothing")
    """)
    assert seen.splitlines() == [
        "FileNotFoundError missing/a.txt None",
        "IsADirectoryError d None",
        "FileExistsError d/a.txt None",
        "FileExistsError d None",
        "OSError d None",
        "FileNotFoundError nothing something",
        "NotADirectoryError d/a.txt None",
        "FileNotFoundError nothing None",
    ]


def test_a_full_disk_is_the_scripts_own_error(desk: Desk) -> None:
    desk.give(log_txt="first\n")
    seen = desk.run("""
        import errno, os, resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        open("log.txt", "a").close()
        open("big.bin", "wb").write(bytes(5000))
        os.remove("big.bin")
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        try:
            with open("big.bin", "wb", buffering=0) as file:
                while file.write(bytes(3000)):
                    pass
        except OSError as failure:
            print(failure.errno == errno.EFBIG)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    """)
    assert seen == "True"
    assert desk.kept() == {"log.txt": "first\n"}


def test_a_copy_that_does_not_fit_leaves_nothing_half_made(desk: Desk) -> None:
    desk.give(big_log="x" * 100_000)
    seen = desk.run("""
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
        try:
            open("big.log", "a")
        except OSError as failure:
            print(failure.filename)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(len(open("big.log").read()))
    """)
    assert seen.splitlines() == ["big.log", "100000"]
    assert list((desk.overlay / "staging").iterdir()) == []
    assert desk.kept() == {"big.log": "x" * 100_000}


def test_names_are_bounded(desk: Desk) -> None:
    desk.run("""
        for number in range(1200):
            open(f"{number}.txt", "w").close()
    """)
    assert len(desk.written) == 1000


def test_the_study_folder_passes(desk: Desk) -> None:
    study = desk.work / ".hotlap"
    study.mkdir()
    desk.run("open('.hotlap/report.json', 'w').write('{}')", PASSTHROUGH=str(study))
    assert desk.kept() == {".hotlap/report.json": "{}"}
    assert desk.written == {}
