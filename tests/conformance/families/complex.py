"""What makes complex numbers, and takes them apart; operators that take real numbers as well are
in ``tests/conformance/test_complex.py``."""

import torch

from tests.conformance.entry import DTYPES, Entry

_COMPLEX = (torch.complex64, torch.complex128)
_REAL = (torch.float32, torch.float64)

ENTRIES = [
    Entry("complex", _REAL),
    Entry("polar", _REAL),
    Entry("view_as_complex", _REAL),
    Entry("view_as_real", _COMPLEX),
    Entry("real", _COMPLEX),
    Entry("imag", _COMPLEX),
    Entry("conj", _COMPLEX),
    Entry("conj_physical", (*_COMPLEX, torch.float32)),
    Entry("resolve_conj", _COMPLEX),
    Entry("resolve_neg", _COMPLEX),
    Entry("angle", (*DTYPES, *_COMPLEX)),
    Entry("cfloat", (torch.float32, torch.int64, torch.complex128)),
    Entry("cdouble", (torch.float32, torch.int64, torch.complex64)),
]
