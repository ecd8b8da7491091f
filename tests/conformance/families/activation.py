"""Activation functions."""

from tests.conformance.entry import Entry

ENTRIES = [
    Entry("nn.functional.relu"),
    Entry("nn.functional.relu6"),
    Entry("nn.functional.gelu"),
    Entry("nn.functional.silu"),
    Entry("nn.functional.leaky_relu"),
    Entry("nn.functional.elu"),
    Entry("nn.functional.celu"),
    Entry("nn.functional.selu"),
    Entry("nn.functional.hardtanh"),
    Entry("nn.functional.hardswish"),
    Entry("nn.functional.hardsigmoid"),
    Entry("nn.functional.softplus"),
    Entry("nn.functional.mish"),
    Entry("nn.functional.prelu"),
    Entry("nn.functional.threshold"),
    Entry("nn.functional.hardshrink"),
    Entry("nn.functional.softshrink"),
    Entry("nn.functional.logsigmoid"),
    Entry("nn.functional.glu"),
    Entry("nn.functional.tanhshrink"),
    Entry("nn.functional.softsign"),
]
