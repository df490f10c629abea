"""The cache on disk: used by the next process, harmless whatever is in it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import warnings
from contextvars import Context
from pathlib import Path

import numpy as np
import pytest

import functrans as ft
from functrans._compile.run import machine, progress, store
from functrans._compile.run.store import stamp_of
from functrans.errors import ArgumentError
from tests.threads import at_once, elsewhere

PROCESS = """
import sys, numpy as np, functrans as ft
from functrans._compile.run import native as executable, machine, native
if sys.argv[1] == "warm":
    machine.Machine.translate = executable.optimise = native.schedule = None  # compiling would fail
y = ft.jit(ft.grad(lambda x: np.sum(np.sin(x) * x)))(np.linspace(0.0, 1.0, 7))
print(np.asarray(y).tobytes().hex())
"""


OF_THREADS = """
import threading, numpy as np, functrans as ft
functions = [ft.jit(lambda x, n=n: (np.exp(x) * x + n, np.sum(x))) for n in range(3)]
together, found = threading.Barrier(6), []
x = np.linspace(0.0, 1.0, 7)

def work(k):
    together.wait()
    for i in range(3):
        y, total = functions[(i + k) % 3](x)
        found.append(((i + k) % 3, y.tobytes(), float(total)))

threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
[t.start() for t in threads]
[t.join() for t in threads]
assert len(found) == 18
print(sorted(set(found)))
"""


@pytest.fixture(autouse=True)
def where(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("FUNCTRANS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("FUNCTRANS_CACHE", raising=False)
    monkeypatch.delenv("FUNCTRANS_CACHE_SIZE", raising=False)
    yield tmp_path / "cache"
    store._totals.clear()


@pytest.fixture
def compiled(monkeypatch):
    """The modules that LLVM compiles from now on."""
    from functrans._compile.run import machine

    texts = []
    translate = machine.Machine.translate

    def counted(self, text, options):
        texts.append(text)
        return translate(self, text, options)

    monkeypatch.setattr(machine.Machine, "translate", counted)
    return texts


def run(n: int = 3) -> None:
    """Compile a function and check what it returns; as if in a new process, as nothing is kept."""
    x = np.linspace(0.5, 1.0, n)
    y = ft.jit(lambda x: np.exp(x) * x - 1.0)(x)
    np.testing.assert_allclose(y, np.exp(x) * x - 1.0, rtol=1e-15)


def start(how: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-W", "error", "-c", PROCESS, how],
                            stdout=subprocess.PIPE, text=True)


def test_what_was_compiled_once_is_loaded_afterwards(compiled):
    run()
    run()
    assert len(compiled) == 1


def test_a_program_of_several_long_sums_that_threads_share_is_the_same_text_each_time():
    def sums(x):
        return [np.sum(f(x)) for f in (np.sin, np.cos, np.exp, np.tanh, np.sqrt, np.log)]

    x = np.ones(200_000)
    texts = {ft.jit(sums).lower(x).llvm for _ in range(4)}
    assert len(texts) == 1
    assert ".block" in texts.pop()


def test_other_shapes_are_other_entries(compiled):
    run(3)
    run(4)
    assert len(compiled) == len(ft.cache.entries()) == 2


def test_scalar_mathematics_is_another_entry(compiled):
    for precise in (False, True, False, True):
        ft.jit(lambda x: np.exp(x) * x, precise=precise)(np.ones(50))
    assert len(compiled) == 2


def test_a_second_process_compiles_nothing():
    outs = []
    for how in ("cold", "warm"):
        p = start(how)
        outs.append(p.communicate()[0])
        assert p.returncode == 0
    assert outs[0] == outs[1] != ""


def test_processes_at_once_agree_and_leave_one_file(where):
    together = [start("cold") for _ in range(4)]
    outs = {p.communicate()[0] for p in together}
    assert len(outs) == 1
    assert [p.returncode for p in together] == [0] * 4
    assert len(list(where.iterdir())) == len(ft.cache.entries()) == 1


def test_processes_of_many_threads_at_once_agree(where):
    together = [subprocess.Popen([sys.executable, "-W", "error", "-c", OF_THREADS],
                                 stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outs = {p.communicate()[0] for p in together}
    assert len(outs) == 1 and outs.pop().count("(") == 3
    assert [p.returncode for p in together] == [0] * 3
    # three functions, and the function that calls compiled ones
    assert len(list(where.iterdir())) == len(ft.cache.entries()) == 4


def test_threads_at_once_leave_whole_files(where):
    key = store.key_of("threads")
    codes = [bytes([i]) * 100_000 for i in range(4)]
    found = []

    def work(code):
        for _ in range(30):
            store.put(key, code, [("program", "p")])
            found.append(store.get(key))

    at_once(work, codes)
    assert set(found) <= set(codes)
    assert [x.name for x in where.iterdir()] == [f"{key}.object"]


def test_entries_say_what_they_are(where):
    run()
    entry, = ft.cache.entries()
    assert entry.path.parent == ft.cache.directory() == where
    assert entry.program.startswith("(float64[3]) -> (float64[3]), 3 equations, ")
    assert "test_cache.py" in entry.program
    assert entry.functrans == ft.__version__
    assert entry.size == ft.cache.size() == entry.path.stat().st_size


def test_what_is_kept_behaves_as_what_was_compiled():
    c, x = np.arange(3.0), np.linspace(0.5, 1.0, 3)

    def f(x, s, n):
        y = np.exp(x) * s
        return (x, y, y, c, {"n": n, "m": 2.5}, np.sum(y * np.sum(y)), y.reshape(3, 1))

    given = [(x, 1.5, 2), (np.repeat(x, 2)[::2], 1.5, 2), (ft.array(x), np.inf, -(2**63))]
    compiled, kept = ft.jit(f), ft.jit(f)
    for args in given * 2:  # the first call of each goes the general way
        for y, e in zip(*[ft.tree.leaves(g(*args)) for g in (compiled, kept)], strict=True):
            np.testing.assert_array_equal(y, e)
            assert (y.dtype, y.shape, type(y)) == (e.dtype, e.shape, ft.Array)
            assert not any(np.shares_memory(y, z) for z in (c, *args))
    assert len([e for e in ft.cache.entries() if "calls" not in e.program]) == 1
    assert repr(kept.lower(*given[0]).schedule) == repr(compiled.lower(*given[0]).schedule)
    assert kept.lower(*given[0]).llvm == compiled.lower(*given[0]).llvm


# ---- what is damaged


def truncated(data: bytes, path: Path) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes, path: Path) -> bytes:
    return data[:-50] + bytes([data[-50] ^ 1]) + data[-49:]


def empty(data: bytes, path: Path) -> bytes:
    return b""


def foreign(data: bytes, path: Path) -> bytes:
    return b"something else\n" * 100


def of_another_key(data: bytes, path: Path) -> bytes:
    return data.replace(path.stem.encode(), b"0" * 64)


def cut_in_the_header(data: bytes, path: Path) -> bytes:
    return data[:40]


@pytest.mark.parametrize(
    "damage", [truncated, flipped, empty, foreign, of_another_key, cut_in_the_header],
    ids=lambda f: f.__name__,
)
def test_a_damaged_file_is_named_and_written_again(damage, where, compiled):
    run()
    path, = where.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole, path))
    with pytest.warns(RuntimeWarning, match=rf"{path.name} is not what functrans wrote there"):
        run()
    assert len(compiled) == 2
    run()
    assert len(compiled) == 2
    assert path.read_bytes() == whole


@pytest.mark.skipif(getattr(os, "getuid", int)() != 0 or not hasattr(os, "chown"),
                    reason="only root can give files away")
def test_code_that_another_user_wrote_is_not_run(where, compiled):
    run()
    path, = where.iterdir()
    os.chown(path, 54321, -1)
    with pytest.warns(RuntimeWarning, match=path.name):
        run()
    assert path.stat().st_uid == 0
    assert len(compiled) == 2


def test_damaged_files_are_no_entries_but_are_cleared(where):
    run()
    path, = where.iterdir()
    path.write_bytes(b"")
    assert ft.cache.entries() == []
    assert ft.cache.clear() == 1


@pytest.fixture
def kept_file():
    """The key of a small file of the cache, its path and its bytes."""
    key = store.key_of("byte")
    store.put(key, b"code", [("program", "p"), ("frame", "[]")])
    path, = store.directory().iterdir()
    return key, path, path.read_bytes()


def assert_noticed(kept_file, damaged):
    key, path, data = kept_file
    path.write_bytes(damaged)
    with pytest.warns(RuntimeWarning, match=key):
        assert store.get(key) is None
    assert ft.cache.entries() == []
    store.put(key, b"code", [("program", "p"), ("frame", "[]")])
    assert path.read_bytes() == data
    assert store.find(key) == ({"program": "p", "frame": "[]"}, b"code")


@pytest.mark.parametrize("mask", [1, 4, 0x80, 0xFF])
def test_every_change_of_a_byte_is_noticed_and_mended(kept_file, mask):
    data = kept_file[2]
    for i in range(len(data)):
        assert_noticed(kept_file, data[:i] + bytes([data[i] ^ mask]) + data[i + 1 :])


def test_every_other_length_is_noticed_and_mended(kept_file):
    data = kept_file[2]
    for i in range(len(data)):
        assert_noticed(kept_file, data[:i])
        assert_noticed(kept_file, data[:i] + b"\n" + data[i:])


def test_any_other_bytes_are_noticed_and_mended(kept_file):
    rng, data = np.random.default_rng(0), kept_file[2]
    head = len(store.MAGIC) + 1
    for n in rng.integers(0, 2 * len(data), 100):
        behind = rng.bytes(n)
        assert_noticed(kept_file, behind)
        assert_noticed(kept_file, data[:head] + behind)
        # its checksum is right, so somebody took trouble; it is still not what is asked for
        assert_noticed(kept_file, store.MAGIC + b"\n" + store._sha256(behind) + b"\n" + behind)


def test_a_file_under_the_name_of_another_is_noticed(kept_file):
    key, other = kept_file[0], store.key_of("other")
    store.put(other, b"other code", [])
    shutil.copy(store.directory() / f"{other}.object", kept_file[1])
    with pytest.warns(RuntimeWarning, match=key):
        assert store.get(key) is None


# ---- what others can have put there


def pipe(path: Path) -> None:
    os.mkfifo(path, 0o600)


def link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_a_whole_file(path: Path) -> None:
    elsewhere = path.parents[1] / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


def huge(path: Path) -> None:
    path.touch(0o600)
    os.truncate(path, 1 << 40)


posix = pytest.mark.skipif(sys.platform == "win32", reason="there are no modes and pipes")


@posix
@pytest.mark.parametrize(
    "put", [pipe, link_to_a_device, link_to_a_whole_file, dangling_link, huge],
    ids=lambda f: f.__name__,
)
def test_what_is_no_file_of_ours_is_neither_read_nor_waited_for_but_replaced(put, where, compiled):
    run()
    path, = where.iterdir()
    if put is not link_to_a_whole_file:
        path.unlink()
    put(path)
    assert ft.cache.entries() == []
    with pytest.warns(RuntimeWarning, match=rf"{path.name} is not what functrans wrote there"):
        run()
    assert path.is_file() and not path.is_symlink()
    assert len(ft.cache.entries()) == 1
    run()
    assert len(compiled) == 2


@posix
@pytest.mark.parametrize("put", [pipe, link_to_a_device, dangling_link], ids=lambda f: f.__name__)
def test_what_is_no_file_of_ours_is_cleared(put, where):
    where.mkdir(mode=0o700)
    put(where / f"{'0' * 64}.object")
    assert ft.cache.clear() == 1
    assert list(where.iterdir()) == []
    assert Path("/dev/zero").exists()


@posix
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_to_is_replaced(mode, where, compiled):
    run()
    path, = where.iterdir()
    path.chmod(mode)
    with pytest.warns(RuntimeWarning, match=path.name):
        run()
    assert path.stat().st_mode & 0o777 == 0o600
    run()
    assert len(compiled) == 2


@posix
@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777, 0o1777])
def test_a_directory_that_others_may_write_to_is_no_cache(mode, where, compiled):
    run()
    where.chmod(mode)
    with pytest.warns(RuntimeWarning, match=rf"{where}.* written to by others.*chmod go-w"):
        run()
    assert len(compiled) == 2
    where.chmod(0o755)
    run()
    assert len(compiled) == 2


@posix
def test_files_are_for_us_alone_whatever_the_umask(where, compiled):
    before = os.umask(0)
    try:
        run()
    finally:
        os.umask(before)
    assert [x.stat().st_mode & 0o777 for x in (where, *where.iterdir())] == [0o700, 0o600]
    run()
    assert len(compiled) == 1


# ---- where there can be none


def test_a_file_in_place_of_the_directory_is_no_cache(where, compiled):
    where.write_text("not a directory")
    run()
    run()
    assert len(compiled) == 2
    assert ft.cache.entries() == []
    assert ft.cache.size() == ft.cache.clear() == 0
    assert where.read_text() == "not a directory"


def test_a_disk_that_is_full_is_no_cache(where, compiled, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    run()
    assert list(where.iterdir()) == []
    monkeypatch.undo()
    monkeypatch.setenv("FUNCTRANS_CACHE_DIR", str(where))
    run()
    assert len(ft.cache.entries()) == 1


def test_no_home_directory_is_no_cache(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("FUNCTRANS_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    run()
    assert ft.cache.entries() == []


# ---- settings


def test_the_environment_switches_it_off(where, monkeypatch):
    monkeypatch.setenv("FUNCTRANS_CACHE", "0")
    run()
    assert not where.exists()


def test_a_path_that_is_to_switch_it_is_refused_and_its_name_is_told(monkeypatch):
    monkeypatch.setenv("FUNCTRANS_CACHE", "/some/where")
    with pytest.raises(ArgumentError, match=r"/some/where.*FUNCTRANS_CACHE_DIR"):
        ft.jit(lambda x: x + 1.25)(np.ones(3))


def test_a_long_compilation_says_so_in_the_log(caplog):
    left = iter([False, False, True])
    waited = []
    with ft.config(log="compile"):
        say = progress._logger()
        progress.report(say, "jit(f): 9 equations", lambda t: waited.append(t) or next(left))
        with progress.progress("jit(f)"):
            pass
    assert caplog.messages == ["jit(f): 9 equations: still compiling after 2 s",
                               "jit(f): 9 equations: still compiling after 4 s"]
    assert waited == [2.0, 2.0, 4.0]


def test_off_neither_reads_nor_writes(where, compiled):
    with ft.cache.off():
        run()
        assert not where.exists()
        run(4)
    run()
    with ft.cache.off():
        run()
    assert len(compiled) == 4
    assert len(ft.cache.entries()) == 1


def test_off_ends_with_its_block_and_holds_in_its_thread_only():
    seen = []
    with contextlib.suppress(ZeroDivisionError), ft.cache.off():
        seen += [elsewhere(Context().run, store.is_enabled), store.is_enabled()]
        raise ZeroDivisionError
    assert [*seen, store.is_enabled()] == [True, False, True]


def kept(monkeypatch, megabytes: str, sizes: list[int], used=()) -> list[int]:
    """Which of several objects, of these bytes, are there after all were written in turn."""
    monkeypatch.setenv("FUNCTRANS_CACHE_SIZE", megabytes)
    keys = [store.key_of(str(i)) for i in range(len(sizes))]
    for i, n in enumerate(sizes):
        store.put(keys[i], bytes(n), [("program", str(i))])
        if i < len(sizes) - 1:
            path = store.directory() / f"{keys[i]}.object"
            os.utime(path, (i + 1.0, i + 1.0))
        if i in used:
            store.get(keys[0])
    return [i for i, k in enumerate(keys) if (store.directory() / f"{k}.object").exists()]


def test_the_oldest_go_first(monkeypatch):
    assert kept(monkeypatch, "0.01", [3000] * 6) == [4, 5]
    assert ft.cache.size() <= 10_000


def test_what_was_used_stays(monkeypatch):
    assert kept(monkeypatch, "0.01", [3000] * 4, used=(2,)) == [0, 3]


def test_what_is_larger_than_the_bound_is_not_kept(monkeypatch):
    assert kept(monkeypatch, "0.01", [3000, 20_000]) == [0]


def test_a_bound_of_zero_keeps_nothing(monkeypatch):
    assert kept(monkeypatch, "0", [3000]) == []


def test_a_bound_that_is_no_number_is_named(monkeypatch):
    monkeypatch.setenv("FUNCTRANS_CACHE_SIZE", "much")
    with pytest.warns(RuntimeWarning, match="FUNCTRANS_CACHE_SIZE is 'much', not a number of MB"):
        assert store.limit() == 256e6


def test_clear_leaves_other_files(where):
    run()
    (where / "notes.txt").write_text("mine")
    assert ft.cache.clear() == 1
    assert [x.name for x in where.iterdir()] == ["notes.txt"]
    assert ft.cache.clear() == 0


def test_what_a_writer_left_is_swept_up(where):
    where.mkdir()
    left = where / f"{'0' * 64}.{'0' * 16}.tmp"
    left.write_bytes(b"half")
    os.utime(left, (1.0, 1.0))
    young = where / f"{'1' * 64}.{'0' * 16}.tmp"
    young.write_bytes(b"half")
    run()
    assert not left.exists()
    assert young.exists()


def test_a_moved_cache_is_used_where_it_is(tmp_path, where, compiled):
    run()
    assert ft.cache.move(tmp_path / "deep" / "elsewhere") == tmp_path / "deep" / "elsewhere"
    assert ft.cache.directory() == tmp_path / "deep" / "elsewhere"
    assert list(where.iterdir()) == []
    run()
    assert len(compiled) == 1
    assert len(ft.cache.entries()) == 1


def test_notes_may_hold_any_file_name():
    key = store.key_of("notes")
    store.put(key, b"\n\ncode", [("program", "a\n\nb \udcff.py:7")])
    assert store.get(key) == b"\n\ncode"
    assert ft.cache.entries()[0].program == r"a b \udcff.py:7"


def test_a_key_says_where_its_parts_end():
    assert store.key_of("ab", "c") != store.key_of("a", "bc")
    assert store.key_of("a") != store.key_of("a", "")


@pytest.mark.parametrize("data", [b"", b"abc", bytes(1000)], ids=len)
def test_the_hash_is_sha256_whichever_module_has_it(data):
    assert store._sha256(data) == hashlib.sha256(data).hexdigest().encode()


def test_a_file_that_another_process_deletes_is_no_error(monkeypatch):
    run()
    ghost = store._File(1.0, 10, store.directory() / f"{'0' * 64}.object")
    monkeypatch.setattr(store, "_scan", lambda where: iter([ghost]))
    assert ft.cache.entries() == []
    assert ft.cache.clear() == 0


def test_the_suite_itself_stays_out_of_the_users_cache(monkeypatch):
    monkeypatch.undo()
    assert "functrans-tests-" in os.environ["FUNCTRANS_CACHE_DIR"]


def test_warnings_as_errors_do_not_lose_the_lock(where):
    run()
    path, = where.iterdir()
    path.write_bytes(b"")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match=r"\.object is not what"):
            run()
    path.unlink()
    run()


def test_code_of_a_changed_compiler_is_not_read(tmp_path):
    room = tmp_path / "room"
    room.mkdir()
    (room / "a.py").write_text("1")
    (tmp_path / "notes.txt").write_text("1")
    first = stamp_of(tmp_path)
    (tmp_path / "notes.txt").write_text("22")
    assert stamp_of(tmp_path) == first
    (room / "a.py").write_text("22")
    second = stamp_of(tmp_path)
    (tmp_path / "b.py").write_text("1")
    assert len({first, second, stamp_of(tmp_path), stamp_of(tmp_path / "absent")}) == 4


def test_every_source_of_the_compiler_is_in_the_stamp():
    package = Path(ft.__file__).parent
    parts = [package / part for part in store.PARTS]
    names = [p.relative_to(part).as_posix() for part in parts for p in part.rglob("*.py")]
    assert all(repr(name) in store.stamp() for name in names)
    assert store.stamp() in machine.local().identity
