"""Work shared among processes: the results of one, whatever becomes of the others. Each test is a process of its own."""

import signal
import subprocess
import sys

import pytest

from support import PATIENCE_SECONDS

BEGIN = """
import os, signal, sys, threading, time
from torchmatrix.ground.sharing import shared

own = os.getpid()

def told(do, pieces=20, helpers=2):
    with shared(do, pieces, helpers) as results:
        return results()
"""


def ended(code: str) -> str:
    """What a process printed that ran this code; no other process, and no descriptor, is left of it."""
    check = (
        "\nfds = len(os.listdir('/proc/self/fd'))\nassert fds < 6, fds\ntry: print(os.wait())\nexcept ChildProcessError: pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BEGIN + code + check], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_results_come_in_order_and_from_several_processes() -> None:
    said = ended("""
import mmap
begun = mmap.mmap(-1, 3)

def do(piece):  # none ends before all have begun
    begun[piece] = 1
    while sum(begun[:]) < 3:
        time.sleep(0.01)
    return piece, os.getpid()

found = told(do, pieces=3)
print([piece for piece, _ in found], len({pid for _, pid in found}))
begun.close()
""")
    assert said == "[0, 1, 2] 3\n"


def test_meanwhile_the_caller_can_prepare() -> None:
    said = ended("""
taken, put = os.pipe()
with shared(lambda piece: os.write(put, b"x") and os.getpid(), 4, 1) as results:
    os.read(taken, 1), os.read(taken, 1), os.read(taken, 1), os.read(taken, 1)  # all is done before anything is asked for
    print(own in results())
os.close(taken), os.close(put)
""")
    assert said == "False\n"


def test_what_a_helper_that_died_did_not_do_is_done() -> None:
    said = ended("""
def do(piece):
    if os.getpid() != own:
        os.kill(os.getpid(), signal.SIGKILL)
    return piece

print(told(do) == list(range(20)))
""")
    assert said == "True\n"


def test_an_error_is_raised_here() -> None:
    said = ended("""
def do(piece):
    if piece == 7:
        raise KeyError(piece)
    return piece

try:
    told(do)
except KeyError as error:
    print(error)
""")
    assert said == "7\n"


def test_a_process_with_threads_is_not_forked() -> None:
    said = ended("""
over = threading.Event()
thread = threading.Thread(target=over.wait)
thread.start()
print(set(told(lambda piece: os.getpid())) == {own})
over.set()
thread.join()
""")
    assert said == "True\n"


def test_where_no_process_can_be_started_this_one_does_all() -> None:
    said = ended("""
import resource
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
try:
    os.setuid(65534)  # root may start any number
except PermissionError:
    pass
print(set(told(lambda piece: os.getpid())) == {own}, told(lambda piece: piece, pieces=0))
""")
    assert said == "True []\n"


def test_an_interruption_ends_all() -> None:
    said = ended("""
def do(piece):
    if os.getpid() == own:
        os.kill(own, signal.SIGINT)
    time.sleep(60)

try:
    told(do)
except KeyboardInterrupt:
    print("interrupted")
""")
    assert said == "interrupted\n"


def test_helpers_of_a_killed_process_end() -> None:
    code = """
def do(piece):
    if os.getpid() == own:
        os.kill(own, signal.SIGKILL)
    time.sleep(0.2)

told(do)
"""
    done = subprocess.run([sys.executable, "-c", BEGIN + code], stdout=subprocess.PIPE, timeout=PATIENCE_SECONDS)
    assert done.returncode < 0  # and its output, which helpers hold open as long as they live, has ended


@pytest.mark.parametrize(
    "begin",
    [
        "helpers = shared(lambda piece: wait(), 4, 2); helpers.__enter__()",
        "pool = ProcessPoolExecutor(1, get_context('spawn'), help_only, (own,)); pool.submit(time.sleep, 1000); until_there()",
    ],
)
def test_helpers_end_with_their_parent_even_if_that_is_killed(begin: str) -> None:
    """They hold the other end of the pipe that is read here to its end."""
    code = f"""
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children, get_context
from torchmatrix.ground.sharing import help_only

begun, begin = os.pipe()

def wait():
    os.write(begin, b"x")
    time.sleep(1000)

def until_there():
    while not active_children():
        time.sleep(0.01)
    os.write(begin, b"x")

if __name__ == "__main__":
    {begin}
    os.read(begun, 1)
    os.kill(own, signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == -signal.SIGKILL
