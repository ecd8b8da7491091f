"""Sorting, selection and order statistics."""

import torch

from tests.conformance.entry import Entry

# Among equal values torch leaves the index open, so values without ties.
_DISTINCT = (torch.float32, torch.float64)

ENTRIES = [
    Entry("sort", dtypes=(*_DISTINCT, torch.int64)),
    Entry("msort"),
    Entry("argsort", dtypes=(*_DISTINCT, torch.int64)),
    Entry("topk", dtypes=_DISTINCT),
    Entry("kthvalue", dtypes=_DISTINCT),
    Entry("median", dtypes=_DISTINCT),
    Entry("nanmedian", dtypes=_DISTINCT),
    Entry("mode", dtypes=(torch.float32, torch.int64)),
    Entry("isin"),
]
