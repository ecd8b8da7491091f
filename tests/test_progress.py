"""The line on stderr while a compile takes long."""

from __future__ import annotations

import io
import logging
import sys
import threading
import time

import pytest

from torch_max_backend.process import progress as module
from torch_max_backend.process.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SHOW_AFTER", 0.1)
    monkeypatch.setattr(module, "_REFRESH", 0.05)


def run(stream: io.StringIO, seconds: float, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    with progress("a graph of 7 operators"):
        time.sleep(seconds)
    return stream.getvalue()


def test_it_starts_after_two_seconds() -> None:
    assert module._SHOW_AFTER == 2.0


def test_a_long_compile_is_announced(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    text = run(Terminal(), 0.4, monkeypatch)
    assert "compiling a graph of 7 operators" in text
    assert "s so far" in text
    assert "compiled a graph of 7 operators in 0." in text
    # One line, written over itself.
    assert text.count("\n") == 1
    assert text.endswith("\n")


def test_a_short_compile_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(Terminal(), 0.05, monkeypatch) == ""


def test_nothing_without_a_terminal(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(io.StringIO(), 0.3, monkeypatch) == ""


def test_nothing_where_logging_hides_warnings(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("torch_max_backend.compile")
    monkeypatch.setattr(logger, "level", logging.ERROR)
    logger.manager._clear_cache()
    try:
        assert run(Terminal(), 0.3, monkeypatch) == ""
    finally:
        logger.manager._clear_cache()


def test_a_failing_compile_ends_the_line(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)

    def fail() -> None:
        with progress("x"):
            time.sleep(0.3)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert stream.getvalue().endswith("\n")
    before = stream.getvalue()
    time.sleep(0.2)
    assert stream.getvalue() == before


def test_compiles_at_once_share_the_line(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)

    def compile(operators: int, seconds: float) -> None:
        with progress(f"a graph of {operators} operators", operators):
            time.sleep(seconds)

    work = [(400, 1.2), (9, 0.6), (3, 0.6)]
    threads = [threading.Thread(target=compile, args=w) for w in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(1200)
    text = stream.getvalue()
    assert "compiling 3 graphs (412 operators), " in text
    # The last one goes on alone.
    assert "compiling a graph of 400 operators, " in text[text.index("compiled a graph of 9 ") :]
    for operators, _ in work:
        assert text.count(f"compiled a graph of {operators} operators in ") == 1
    # Whole messages only, and nothing of a longer one is left behind a shorter one.
    messages = [m for line in text.split("\n") for m in line.split("\r") if m]
    assert all(m.startswith("torch_max_backend: compil") for m in messages)
    assert all(m.rstrip().endswith((" s so far", " s")) for m in messages)
    shown = ""
    for message in text.rstrip("\n").split("\n")[-1].split("\r"):
        assert len(message) >= len(shown.rstrip()) or not message
        shown = message or shown


def test_unknown_counts_are_left_out(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress("12 programs"), progress("a graph of 3 operators", 3):
        time.sleep(0.4)
    assert "compiling 2 graphs, " in stream.getvalue()


def test_a_compile_too_short_to_be_told_of_leaves_no_text(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress("a short one", 1):
        time.sleep(0.02)
    time.sleep(0.2)
    assert stream.getvalue() == ""
