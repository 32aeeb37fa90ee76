from hypothesis import given, settings
from hypothesis import strategies as st

from tuneclinic.probes.crashes import crash_of, out_of_memory

PIECES = st.sampled_from(
    [
        "Traceback (most recent call last):", '  File "a.py", line 3, in f', '  File "a.py", line 99999999999999999999, in f', "    x = 1", "ValueError: x", "RuntimeError", "KeyboardInterrupt",
        "[rank1]: ", "[rank1]: Traceback (most recent call last):", '[rank1]:   File "b.py", line 1, in g', "[rank1]: OSError: [Errno 28] No space left on device", "0: Traceback (most recent call last):",
        "During handling of the above exception, another exception occurred:", "The above exception was the direct cause of the following exception:", "Root Cause (first observed failure):",
        "  rank      : 3 (local_rank: 3)", "  exitcode  : -9 (pid: 1)  (SIGKILL)", "Killed", "Exception ignored in: x", "CUDA out of memory. Tried to allocate 1..2 GiB", "  what():  CUDA error: x",
        "terminate called after throwing an instance of 'c10::Error'", "", "\x1b[31m", "\r", "(WorkerDict pid=1) ValueError: y", "Original Traceback (most recent call last):",
    ]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(PIECES, st.text(max_size=60), st.tuples(PIECES, st.text(max_size=20)).map("".join)), max_size=60))
def test_any_lines(lines):
    found = crash_of(list(enumerate(lines, 1)), "x.log")
    if found is not None:
        assert found.errors
        for error in found.errors:
            assert error.kind
            assert 1 <= int(error.where.rsplit(":", 1)[1]) <= len(lines)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="CUDA outofmemryTidlcaGPUi .0123456789,;()", max_size=300))
def test_any_memory_text(text):
    out_of_memory("CUDA out of memory. " + text)


def test_long_lines_take_linear_time():
    crash_of(
        [(1, 'File "' * 200_000), (2, "Error: " * 200_000), (3, ".cu:1: Assertion `" * 100_000), (4, "(a pid=1" * 100_000)], "x"
    )
