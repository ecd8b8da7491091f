"""The environment variables, each read when it is needed, never at import."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_max_backend.errors import SettingError
from torch_max_backend.options import ENGINES, FALLBACKS

_PREFIX = "TORCH_MAX_BACKEND_"
TRUE = ("1", "true", "yes", "on")
FALSE = ("0", "false", "no", "off", "")


@dataclass(frozen=True)
class Kind:
    """What values a variable takes.

    Attributes:
        allowed: Them, in words.
        parse: Makes a value of the text, which has no white space around it; raises ``ValueError``
            or ``KeyError`` for any other text.
    """

    allowed: str
    parse: Callable[[str], Any]


def _one_of(words: tuple[str, ...]) -> Kind:
    """One of some words, in any case. Nothing is as if the variable was not set."""
    values = {"": None, **{word: word for word in words}}
    allowed = f"{', '.join(words[:-1])} or {words[-1]}, in any case"
    return Kind(allowed, lambda text: values[text.lower()])


def _count(text: str) -> int | None:
    if text and not (text.isdecimal() and int(text)):
        raise ValueError(text)
    return int(text) if text else None


_SWITCHED = {**dict.fromkeys(TRUE, True), **dict.fromkeys(FALSE, False)}
_SWITCH = Kind(
    f"{', '.join(TRUE)} (on), or {', '.join(filter(None, FALSE))} or nothing (off), in any case",
    lambda text: _SWITCHED[text.lower()],
)
_FOLDER = Kind("the path of a folder", lambda text: Path(text).expanduser() if text else None)
_COUNT = Kind("a whole number from 1", _count)


@dataclass(frozen=True)
class Setting:
    """A variable that this package reads.

    Attributes:
        name: Its name without the prefix.
        kind: What values it takes.
        default: Its value where it is not set.
        usual: The default, as the page about options says it.
        meaning: What it does, as the page says it.
    """

    name: str
    kind: Kind
    default: Any
    usual: str
    meaning: str

    @property
    def variable(self) -> str:
        return _PREFIX + self.name

    def read(self) -> Any:
        """Its value now.

        Raises:
            SettingError: It is set to what it cannot be.
        """
        text = os.environ.get(self.variable)
        if text is None:
            return self.default
        try:
            value = self.kind.parse(text.strip())
        except (KeyError, ValueError):
            raise SettingError(
                f"The environment variable {self.variable} is set to {text!r}.",
                f"It may be {self.kind.allowed}.",
            ) from None
        return self.default if value is None else value


# What reads, names and checks the variables, what `doctor` says of them, and what a test compares
# with the page about options.
SETTINGS = {
    setting.name: setting
    for setting in (
        Setting(
            "VERBOSE",
            _SWITCH,
            False,
            "off",
            "print each FX graph, and its steps or its MAX graph, on stderr",
        ),
        Setting(
            "PROFILE",
            _SWITCH,
            False,
            "off",
            "print the time of each compile stage and call on stderr, at exit a table",
        ),
        Setting(
            "BEARTYPE",
            _SWITCH,
            True,
            "on",
            "check the type hints of lowerings while a graph is built",
        ),
        Setting("CACHE", _SWITCH, True, "on", "keep compiled artifacts on disk"),
        Setting(
            "CACHE_DIR",
            _FOLDER,
            None,
            "`~/.cache/torch_max_backend`",
            "where (`$XDG_CACHE_HOME` is respected)",
        ),
        Setting(
            "FALLBACK",
            _one_of(FALLBACKS),
            "eager",
            "`eager`",
            "what the option `fallback` is unless given: `eager`, `inductor` or `error`",
        ),
        Setting(
            "ENGINE",
            _one_of(ENGINES),
            "auto",
            "`auto`",
            "what the option `engine` is unless given: `auto`, `steps` or `max`",
        ),
        Setting(
            "FUSE",
            _SWITCH,
            True,
            "on",
            "compile element-wise programs of the steps engine in the background",
        ),
        Setting(
            "HUGE_PAGES",
            _SWITCH,
            True,
            "on",
            "put large parameters into pages of 2 MB in the background (Linux)",
        ),
        Setting(
            "DUMP",
            _FOLDER,
            None,
            "",
            "a folder in which each compile leaves its graphs, MAX module, timing and artifact",
        ),
        Setting(
            "COMPILE_JOBS",
            _COUNT,
            None,
            "by CPUs and memory",
            "how many processes compile at once, from 1",
        ),
    )
}


def verbose() -> bool:
    """Print each FX graph and MAX graph on stderr."""
    return SETTINGS["VERBOSE"].read()


def profile() -> bool:
    """Print timings of each compile stage and call on stderr."""
    return SETTINGS["PROFILE"].read()


def beartype_enabled() -> bool:
    """Check type hints of lowerings at run time."""
    return SETTINGS["BEARTYPE"].read()


def cache_enabled() -> bool:
    """Keep compiled artifacts on disk."""
    return SETTINGS["CACHE"].read()


def fallback() -> str:
    """What option ``fallback`` is unless given."""
    return SETTINGS["FALLBACK"].read()


def engine() -> str:
    """What option ``engine`` is unless given."""
    return SETTINGS["ENGINE"].read()


def fuse() -> bool:
    """Compile element-wise programs in the background."""
    return SETTINGS["FUSE"].read()


def huge_pages() -> bool:
    """Put large parameters into huge pages."""
    return SETTINGS["HUGE_PAGES"].read()


def cache_dir() -> Path:
    """Where artifacts are kept: by default a folder of the user's cache directory."""
    given = SETTINGS["CACHE_DIR"].read()
    if given:
        return given
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "torch_max_backend"


def dump_dir() -> Path | None:
    """The folder in which each compile leaves its files, if given."""
    return SETTINGS["DUMP"].read()


def compile_jobs() -> int | None:
    """How many processes may compile at once, if given."""
    return SETTINGS["COMPILE_JOBS"].read()


def names() -> frozenset[str]:
    """The variables that this package reads."""
    return frozenset(setting.variable for setting in SETTINGS.values())


def check() -> None:
    """Read all variables.

    Raises:
        SettingError: One of them is set to what it cannot be.
    """
    for setting in SETTINGS.values():
        setting.read()
