"""Finding what is wrong: where a graph departs from eager, and scripts that repeat a failure."""

from torch_max_backend.debug.compare import Comparison, GraphComparison, NodeError, compare
from torch_max_backend.debug.repro import repro
from torch_max_backend.driver.compile_files import dump

__all__ = ["Comparison", "GraphComparison", "NodeError", "compare", "dump", "repro"]
