"""What long calls show: in words, in a terminal, in a log and in a notebook, and nowhere else."""

import contextlib
import io
import os
import subprocess
import sys
import threading
import time

import pytest

import dobrushin as db
from dobrushin._shared import call, progress
from dobrushin._shared import compile as pieces
from dobrushin._shared.call import Deadline
from dobrushin._shared.clock import COMPILATION, PAUSES

MODEL = db.Ising.grid(4, 4, couplings=0.1)


class Screen:
    """A place to show progress that keeps what it was shown, and tells when."""

    def __init__(self):
        self.texts, self.ends, self.rests = [], [], 0
        self.shown = threading.Event()

    def draw(self, stage, text, share):
        self.texts.append((stage, text, share))
        self.shown.set()

    def rest(self):
        self.rests += 1

    def end(self, name, text, is_done):
        del text
        self.ends.append((name, is_done))

    def wait(self):
        """Until something more is shown."""
        self.shown.clear()
        assert self.shown.wait(30)
        return self.texts[-1]


@contextlib.contextmanager
def calling(name):
    """A public function of this name."""
    token = call.enter(call.Call(name))
    try:
        with call.watch(None, "planning"):
            yield
    finally:
        call.leave(token)


@pytest.fixture
def screen(monkeypatch):
    place = Screen()
    monkeypatch.setattr(call, "display_for", lambda wanted: None if wanted is False else lambda: place)
    monkeypatch.setattr(progress, "_FIRST_PICTURE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_PICTURE_SECONDS", 0.01)
    return place


def test_stages_are_told_in_words():
    stage = progress.Stage("planning", None, "")
    assert stage.text() == "planning, 0 s"
    stage = progress.Stage("sampling", 200, "updates")
    assert stage.text() == "sampling 0 %"
    stage.report(20)  # of an earlier run: says nothing about the pace
    assert stage.text() == "sampling 10 %"
    stage._first = (20, time.monotonic() - 6.0)
    stage.report(80)
    assert stage.text() == "sampling 40 %, 12 s left, 10 updates/s"
    assert progress.Stage("x", 0, "").share is None


@pytest.mark.parametrize(("limit", "left"), [(5.0, "5 s left until the time limit"), (50.0, "12 s left")])
def test_what_is_left_ends_with_the_limit_in_time(limit, left):
    stage = progress.Stage("sampling", 200, "updates", Deadline(limit, clock=lambda: 0.0))
    stage.report(20)
    stage._first = (20, time.monotonic() - 6.0)
    stage.report(80)
    assert stage.text() == f"sampling 40 %, {left}, 10 updates/s"


def test_a_call_shows_its_innermost_stage_or_the_bar_whose_end_people_wait_for(screen):
    with calling("estimate"):
        assert screen.wait()[0] == "planning"
        with call.stage("choosing"):
            screen.wait()
            assert screen.wait()[0] == "choosing"
        with call.bar(10, "answering") as report:
            report(5)
            with call.bar(1000, "sampling"):
                screen.wait()
                assert screen.wait()[::2] == ("answering", 0.5)
    assert screen.ends == [("estimate", True)]


def test_compilation_is_told(screen):
    with call.watch(None, "planning"):
        COMPILATION.begin()
        try:
            screen.wait()
            assert screen.wait()[1].startswith("compiling, once for this kind of model")
        finally:
            COMPILATION.end()
        PAUSES.begin()  # as for work that is interpreted, which is no compilation
        try:
            screen.wait()
            assert screen.wait()[0] == "planning"
        finally:
            PAUSES.end()


def test_work_in_pieces_has_a_bar(screen, monkeypatch):
    shown = []

    def halves(at, allowance):
        """A kernel of two pieces."""
        del allowance
        if at[0]:
            shown.append(screen.wait()[::2])
        at[0] += 5

    monkeypatch.setattr(pieces, "first_piece", lambda kernel, _: (kernel, 1))
    with call.watch(None, "planning"):
        pieces.in_pieces(halves, 10, what="bounding the bias")
        screen.wait()
        assert screen.wait()[0] == "planning"
    assert shown == [("bounding the bias", 0.5)]


@pytest.mark.usefixtures("screen")
def test_exact_draws_and_greedy_scans_say_how_far_they_are(monkeypatch):
    seen = []
    monkeypatch.setattr(progress.Watch, "enter", lambda _, stage: seen.append((stage.what, stage.total)))
    db.exact_sample(MODEL, [0], draws=100, seed=1)
    db.greedy_scan(MODEL, [0], steps=9)
    assert ("drawing from 64 steps back", 64 * 100) in seen
    assert ("choosing a scan from its end", 9) in seen


@pytest.mark.usefixtures("screen")
def test_every_long_public_call_is_watched(monkeypatch):
    seen, end = [], progress.Watch.end

    def note(watch, name, is_done):
        seen.append((name, is_done))
        end(watch, name, is_done)

    monkeypatch.setattr(progress.Watch, "end", note)
    scan = db.Scan.systematic(16, 32)
    db.estimate(MODEL, [0])
    db.plan(MODEL, [0])
    db.estimate_many(MODEL, [([0], None)])
    db.sample(MODEL, scan)
    db.coalescence(MODEL, scan, runs=64)
    db.exact_sample(MODEL, [0], draws=3)
    db.influence(MODEL)
    db.variation(MODEL, scan)
    db.shortest_scan(MODEL, [0], tolerance=0.1)
    db.greedy_scan(MODEL, [0], steps=9)
    db.optimize_scan(MODEL, scan)
    db.diagnose(MODEL)
    db.exact.marginals(MODEL)
    db.exact.log_partition(MODEL)
    db.exact.most_likely(MODEL)
    db.fit(MODEL, db.sample(MODEL, scan, chains=20, progress=False).states, method="exact", iterations=2)
    names = (
        "estimate plan estimate_many sample coalescence exact_sample influence variation shortest_scan greedy_scan "
        "optimize_scan diagnose exact.marginals exact.log_partition exact.most_likely fit"
    )
    assert [name for name, _ in seen if name != "dobrushin"] == names.split()  # parts are loaded on first use
    assert all(is_done for _, is_done in seen)


def test_loading_is_told_in_a_terminal_and_leaves_no_output_in_a_notebook(screen, monkeypatch):
    with call.loading():
        assert screen.wait()[0] == "loading"
    monkeypatch.setattr(call, "is_notebook", lambda: True)
    with call.loading(), call.bar(1, "x") as report:
        assert report is None


def test_what_is_switched_off_stays_off_also_inside(screen):
    with call.watch(False):
        db.estimate(MODEL, [0], progress=True)
        with call.bar(10, "sampling") as report:
            assert report is None
    db.estimate(MODEL, [0], progress=False)
    assert screen.ends == []


def test_a_call_that_fails_is_not_done(screen):
    with contextlib.suppress(ValueError), calling("estimate"):
        screen.wait()
        raise ValueError
    assert screen.ends == [("estimate", False)]
    with pytest.raises(db.ArgumentError):
        db.estimate(MODEL, ["no"])


def test_a_screen_that_breaks_does_not_break_the_call(screen):
    def draw(*_):
        screen.shown.set()
        raise OSError

    screen.draw = draw
    with call.watch(None, "planning"):
        screen.shown.wait(30)
    assert len(screen.texts) == 0


def test_a_terminal_has_a_line_that_goes_away():
    class Stream(io.StringIO):
        encoding = "ascii"

    place = progress.Terminal(Stream())
    place.draw("sampling", "sampling 50 %, 12 s left", 0.5)
    line = place._stream.getvalue()
    assert line == "\r\x1b[2K" + "#" * 12 + "-" * 12 + " sampling 50 %, 12 s left"
    place.end("sample", "sample, done in 5 s", True)
    assert place._stream.getvalue() == line + "\r\x1b[2K"
    place._stream.close()
    place.draw("sampling", "sampling 60 %", 0.6)  # nobody is there any more


def test_a_log_has_lines_that_become_rarer(monkeypatch):
    stream, now = io.StringIO(), [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    place = progress.Log(stream)
    for second in range(400):
        now[0] = float(second)
        place.draw("planning" if second < 3 else "sampling", f"{second}", None)
    place.rest()
    place.end("sample", "sample, done in 400 s", True)
    lines = stream.getvalue().splitlines()
    assert lines[:6] == [f"dobrushin: {second}" for second in (0, 1, 3, 4, 6, 10)]
    assert lines[-1] == "dobrushin: sample, done in 400 s"
    assert len(lines) < 20


def test_who_looks_decides(monkeypatch):
    class Stream(io.StringIO):
        tty = True

        def isatty(self):
            return self.tty

    stream = Stream()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(progress.display_for(None)(), progress.Terminal)
    assert progress.display_for(False) is None
    monkeypatch.setenv("TERM", "dumb")
    assert progress.display_for(None) is None
    stream.tty = False
    assert progress.display_for(None) is None
    assert isinstance(progress.display_for(True)(), progress.Log)
    monkeypatch.setattr(progress, "is_notebook", lambda: True)
    assert isinstance(progress.display_for(None)(), progress.Notebook)
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(progress, "is_notebook", lambda: False)
    assert progress.display_for(True) is None


def test_a_process_that_was_forked_shows_nothing():
    code = (
        "import os, dobrushin as db; from dobrushin._shared import call\n"
        "with call.watch(True, 'planning'):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        with call.bar(1, 'x') as report: os._exit(0 if report is None else 1)\n"
        "    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_verbose_commands_tell_logs_and_programs_are_not_told():
    from dobrushin.cli.output import Output

    assert Output(False, False).shows_progress(False) is None
    assert Output(False, False).shows_progress(True) is True
    assert Output(True, False).shows_progress(True) is False
    assert Output(False, True).shows_progress(False) is False


@pytest.mark.slow
def test_a_notebook_shows_the_bar_while_it_moves_and_keeps_it():
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    texts = []

    class Client(nbclient.NotebookClient):
        def process_message(self, message, cell, index):
            texts.append(message["content"].get("data", {}).get("text/plain", ""))
            return super().process_message(message, cell, index)

    source = (
        "import dobrushin as db\n"
        "model = db.Ising.grid(50, 50, couplings=0.4)\n"
        "db.sample(model, db.Scan.systematic(2500, 10**8), chains=10**4, record='counts', time_limit=2.5).chains"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    Client(notebook, timeout=120, kernel_name="python3").execute()
    kept = notebook.cells[0].outputs[0]["data"]
    assert "<progress" in kept["text/html"]
    assert kept["text/plain"].startswith("sample, done in ")
    assert any(text.startswith("sampling ") and "left" in text for text in texts), texts


def run(code, **environment):
    """A program of its own: what it printed, and what it printed to the log."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_a_log_that_can_only_be_written_to_is_enough(monkeypatch):
    class Stream:
        def write(self, text):
            return len(text)

    monkeypatch.setattr(sys, "stderr", Stream())
    model = db.Ising.grid(2, 2, couplings=0.1)
    for wanted in (None, True, False):
        assert db.estimate(model, [0], progress=wanted).chains == 0


_IN_A_FORK = """
import os, sys, time
from dobrushin._shared import call, progress
progress._FIRST_PICTURE_SECONDS = 0.0
if child := os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
with call.watch(True, "planning"):
    time.sleep(0.4)
sys.stderr.flush()
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_process_that_was_forked_before_its_call_shows_it():
    assert "dobrushin: planning" in run(_IN_A_FORK)[1]


_A_FORK_IN_A_PAUSE = """
import os, signal, threading, time
from dobrushin._shared.clock import PAUSES, seconds
def compile_something():
    PAUSES.begin()
    PAUSES._lock.acquire()
thread = threading.Thread(target=compile_something)
thread.start()
thread.join()
if child := os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.alarm(10)
begin = seconds()
time.sleep(0.01)
os._exit(0 if seconds() > begin and PAUSES.current is None else 1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_the_clock_of_a_process_that_was_forked_goes_on():
    run(_A_FORK_IN_A_PAUSE)
