"""Cumulative operations."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("cumsum"),
    Entry("cumprod"),
    Entry("cummax"),
    Entry("cummin"),
    Entry("logcumsumexp"),
    Entry("cumulative_trapezoid"),
]
