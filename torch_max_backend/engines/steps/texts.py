"""Mojo texts that become libraries, besides the shells of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """A Mojo text that exports functions.

    It may share a library with others: what it defines and imports has a name that means nothing
    else in any of them.

    Attributes:
        name: What the files of a library of its own begin with.
        text: The text; it may import from ``kernels.<module>``.
        symbols: The functions, each with a description.
        modules: The modules of this package's kernels that it imports.
    """

    name: str
    text: str
    symbols: Mapping[str, str]
    modules: Sequence[str] = ()
