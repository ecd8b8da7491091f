"""Transforms of a few numbers, in registers."""

comptime Lanes[dtype: DType, width: Int, radix: Int] = Array[SIMD[dtype, width], radix]


@always_inline
def butterfly[
    dtype: DType, width: Int, radix: Int
](mut re: Lanes[dtype, width, radix], mut im: Lanes[dtype, width, radix]):
    """The transform of `radix` numbers, in place."""
    comptime if radix == 2:
        var ar = re[0] - re[1]
        var ai = im[0] - im[1]
        re[0] = re[0] + re[1]
        im[0] = im[0] + im[1]
        re[1] = ar
        im[1] = ai
    elif radix == 3:
        comptime half_root = 0.866025403784438646763723170752936
        var sr = re[1] + re[2]
        var si = im[1] + im[2]
        var dr = (im[1] - im[2]) * Scalar[dtype](half_root)
        var di = (re[2] - re[1]) * Scalar[dtype](half_root)
        var mr = re[0] - sr * Scalar[dtype](0.5)
        var mi = im[0] - si * Scalar[dtype](0.5)
        re[0] = re[0] + sr
        im[0] = im[0] + si
        re[1] = mr + dr
        im[1] = mi + di
        re[2] = mr - dr
        im[2] = mi - di
    elif radix == 4:
        var ar = re[0] + re[2]
        var ai = im[0] + im[2]
        var br = re[0] - re[2]
        var bi = im[0] - im[2]
        var cr = re[1] + re[3]
        var ci = im[1] + im[3]
        var dr = im[1] - im[3]
        var di = re[3] - re[1]
        re[0] = ar + cr
        im[0] = ai + ci
        re[1] = br + dr
        im[1] = bi + di
        re[2] = ar - cr
        im[2] = ai - ci
        re[3] = br - dr
        im[3] = bi - di
    else:
        comptime assert radix == 5, "no such butterfly"
        comptime c1 = 0.309016994374947424102293417182819
        comptime c2 = -0.809016994374947424102293417182819
        comptime s1 = 0.951056516295153572116439333379382
        comptime s2 = 0.587785252292473129168705954639073
        var pr = re[1] + re[4]
        var pi = im[1] + im[4]
        var qr = re[2] + re[3]
        var qi = im[2] + im[3]
        var ur = re[1] - re[4]
        var ui = im[1] - im[4]
        var vr = re[2] - re[3]
        var vi = im[2] - im[3]
        var ar = re[0] + pr * Scalar[dtype](c1) + qr * Scalar[dtype](c2)
        var ai = im[0] + pi * Scalar[dtype](c1) + qi * Scalar[dtype](c2)
        var br = re[0] + pr * Scalar[dtype](c2) + qr * Scalar[dtype](c1)
        var bi = im[0] + pi * Scalar[dtype](c2) + qi * Scalar[dtype](c1)
        var cr = ui * Scalar[dtype](s1) + vi * Scalar[dtype](s2)
        var ci = ur * Scalar[dtype](s1) + vr * Scalar[dtype](s2)
        var dr = ui * Scalar[dtype](s2) - vi * Scalar[dtype](s1)
        var di = ur * Scalar[dtype](s2) - vr * Scalar[dtype](s1)
        re[0] = re[0] + pr + qr
        im[0] = im[0] + pi + qi
        re[1] = ar + cr
        im[1] = ai - ci
        re[4] = ar - cr
        im[4] = ai + ci
        re[2] = br + dr
        im[2] = bi - di
        re[3] = br - dr
        im[3] = bi + di
