"""Bitwise operators: logic on bool, refused on integers."""

from tests.conformance.entry import Entry

REASON = "MAX has no bitwise operators on integers"

ENTRIES = [
    Entry("bitwise_and", refused={"bitwise_and-int64": REASON}),
    Entry("bitwise_or", refused={"bitwise_or-int64": REASON}),
    Entry("bitwise_xor", refused={"bitwise_xor-int64": REASON}),
    Entry("bitwise_not"),
    Entry("__rand__", refused={"__rand__-int64": REASON}),
    Entry("__ror__", refused={"__ror__-int64": REASON}),
    Entry("__rxor__", refused={"__rxor__-int64": REASON}),
]
