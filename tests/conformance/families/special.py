"""Special functions."""

import torch

from tests.conformance.entry import Entry

_FEW = (torch.float32, torch.float64, torch.int64)

ENTRIES = [
    Entry("lgamma"),
    Entry("digamma"),
    Entry("erfinv"),
    Entry("i0"),
    *(
        Entry(name, samples=2)
        for name in ("igamma", "igammac", "mvlgamma.mvlgamma_p_3", "special.i0e", "special.i1")
    ),
    # Eager's float64 of these is wrong in the seventh digit.
    *(
        Entry(name, dtypes=(torch.float32, torch.int64), samples=1)
        for name in (
            "special.bessel_j0",
            "special.bessel_j1",
            "special.bessel_y0",
            "special.bessel_y1",
        )
    ),
    *(
        Entry(name, dtypes=_FEW, samples=1)
        for name in (
            "polygamma.polygamma_n_0",
            "polygamma.polygamma_n_1",
            "polygamma.polygamma_n_2",
            "special.airy_ai",
            "special.chebyshev_polynomial_t",
            "special.chebyshev_polynomial_u",
            "special.chebyshev_polynomial_v",
            "special.chebyshev_polynomial_w",
            "special.erfcx",
            "special.hermite_polynomial_h",
            "special.hermite_polynomial_he",
            "special.i1e",
            "special.laguerre_polynomial_l",
            "special.legendre_polynomial_p",
            "special.log_ndtr",
            "special.modified_bessel_i0",
            "special.modified_bessel_i1",
            "special.modified_bessel_k0",
            "special.modified_bessel_k1",
            "special.ndtri",
            "special.scaled_modified_bessel_k0",
            "special.scaled_modified_bessel_k1",
            "special.shifted_chebyshev_polynomial_t",
            "special.shifted_chebyshev_polynomial_u",
            "special.shifted_chebyshev_polynomial_v",
            "special.shifted_chebyshev_polynomial_w",
            "special.spherical_bessel_j0",
            "special.zeta",
        )
    ),
]
