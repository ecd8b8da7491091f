"""Sizes of a graph with symbolic dims: integers, or polynomials over symbols.

Two sizes are equal if they are the same polynomial. What cannot be said as one (a quotient that
does not come out even) is an atom of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

# A product of atoms, sorted; an atom is a symbol or the text of a quotient.
_Monomial = tuple[str, ...]
_NAME = re.compile(r"[A-Za-z_]\w*")


class Expr:
    """A size that symbols decide. Arithmetic gives an ``int`` where nothing symbolic remains."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[_Monomial, int]) -> None:
        self.terms = terms
        self._hash = hash(frozenset(terms.items()))

    @staticmethod
    def symbol(name: str) -> Expr:
        return Expr({(name,): 1})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Size) -> Size:
        terms = dict(self.terms)
        for monomial, factor in _terms(other).items():
            terms[monomial] = terms.get(monomial, 0) + factor
        return _simplest(terms)

    __radd__ = __add__

    def __neg__(self) -> Size:
        return Expr({m: -f for m, f in self.terms.items()})

    def __sub__(self, other: Size) -> Size:
        return self + -other

    def __rsub__(self, other: Size) -> Size:
        return -self + other

    def __mul__(self, other: Size) -> Size:
        terms: dict[_Monomial, int] = {}
        for m, f in self.terms.items():
            for n, g in _terms(other).items():
                both = tuple(sorted(m + n))
                terms[both] = terms.get(both, 0) + f * g
        return _simplest(terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Size:
        exact = quotient(self, other)
        return Expr({(f"(({self}) // ({other}))",): 1}) if exact is None else exact

    def __rfloordiv__(self, other: Size) -> Size:
        return Expr({(f"(({other}) // ({self}))",): 1})

    def __str__(self) -> str:
        parts = []
        for monomial, factor in sorted(self.terms.items()):
            factors = [str(factor)] if factor != 1 or not monomial else []
            parts.append("*".join(factors + list(monomial)))
        return " + ".join(parts)

    __repr__ = __str__


Size = int | Expr
Sizes = tuple[Size, ...]


def _terms(size: Size) -> Mapping[_Monomial, int]:
    if isinstance(size, Expr):
        return size.terms
    return {(): size} if size else {}


def _simplest(terms: Mapping[_Monomial, int]) -> Size:
    kept = {m: f for m, f in terms.items() if f}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return kept[()]
    return Expr(kept)


def quotient(size: Size, divisor: Size) -> Size | None:
    """``size / divisor`` if it comes out even whatever the symbols are, else ``None``."""
    if isinstance(size, int) and isinstance(divisor, int):
        return size // divisor if divisor and size % divisor == 0 else None
    if size == divisor:
        return 1
    below = _terms(divisor)
    if len(below) != 1:
        return None
    ((lower, factor),) = below.items()
    terms: dict[_Monomial, int] = {}
    for monomial, count in _terms(size).items():
        rest = list(monomial)
        for atom in lower:
            if atom not in rest:
                return None
            rest.remove(atom)
        if count % factor:
            return None
        terms[tuple(rest)] = count // factor
    return _simplest(terms)


def product(sizes: Iterable[Size]) -> Size:
    """The product of sizes; 1 of none."""
    result: Any = 1
    for size in sizes:
        result = result * size
    return result


def dense_strides(shape: Sizes) -> Sizes:
    """The strides, in elements, of a contiguous tensor."""
    strides: list[Size] = []
    step: Any = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def names_in(size: Size) -> set[str]:
    """The symbols of a size."""
    return set() if isinstance(size, int) else set(_NAME.findall(str(size)))


def symbols_of(shapes: Iterable[Sizes]) -> dict[str, tuple[int, int]]:
    """The symbols that tensors tell by sizes of theirs: of each the first such tensor and its
    dim."""
    found: dict[str, tuple[int, int]] = {}
    for i, shape in enumerate(shapes):
        for axis, size in enumerate(shape):
            name = str(size)
            if name.isidentifier():
                found.setdefault(name, (i, axis))
    return found
