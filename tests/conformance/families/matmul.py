"""Matrix products."""

from tests.conformance.entry import Entry

ENTRIES = [
    # One sample each: every new shape of a product costs seconds to compile.
    Entry("mm", samples=1),
    Entry("addmm", samples=2),
    Entry("addmm.decomposed", samples=1),
    Entry("addmv"),
    Entry("addbmm", samples=1),
    Entry("baddbmm", samples=1),
    Entry("bmm", samples=1),
    Entry("mv"),
    Entry("dot"),
    Entry("vdot"),
    Entry("inner", samples=1),
    Entry("matmul", samples=2),
    Entry("einsum", samples=1),
    Entry("tensordot", samples=1),
    Entry("linalg.vecdot"),
    Entry("linalg.multi_dot", samples=1),
]
