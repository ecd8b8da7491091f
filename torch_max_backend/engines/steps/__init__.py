"""The steps engine: a MAX graph runs on CPU as a table of calls of kernels built ahead of it."""
