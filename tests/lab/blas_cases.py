# SPDX-License-Identifier: Apache-2.0
"""A program for the tests of `weft blas run`: dense linear algebra of all sorts.

    blas_cases.py FILE            compute everything, keep the results in FILE
    blas_cases.py FILE --compare  compute everything, compare with FILE, fail where it differs

The first is run with PyTorch's own BLAS, the second with another library.
"""

import sys
import warnings

import torch
import torch.nn.functional as F

REAL = (torch.float32, torch.float64)
TYPES = (*REAL, torch.complex64, torch.complex128)
BETA, ALPHA = 0.5, -1.5
SIZES = [(1, 1, 1), (1, 6, 4), (6, 4, 1), (1, 9, 1), (33, 64, 17), (150, 120, 170)]
EMPTY = [(0, 5, 3), (4, 0, 3), (3, 5, 0), (0, 0, 0)]


def forms(rows, columns, dtype, batch=()):
    """One matrix in the ways it can lie in memory."""
    plain = torch.randn(*batch, rows, columns, dtype=dtype)
    yield "rows", plain
    yield "columns", plain.mT.contiguous().mT
    wide = torch.randn(*batch, 2 * rows, 3 * columns, dtype=dtype)
    wide[..., ::2, ::3] = plain
    yield "strided", wide[..., ::2, ::3]
    padded = torch.randn(*batch, rows, columns + 2, dtype=dtype)
    padded[..., :columns] = plain
    yield "padded", padded[..., :columns]
    yield "expanded", plain[..., :1, :].expand(*batch, rows, columns)
    if dtype.is_complex:
        yield "conjugated", plain.conj()


def two_forms(rows, columns, dtype):
    if rows * columns == 0:
        return [("rows", torch.empty(rows, columns, dtype=dtype))]
    return [pair for pair in forms(rows, columns, dtype) if pair[0] in ("rows", "columns")]


def with_gradients(function, *inputs):
    """The value and the gradients of its inputs, against a direction that is not constant."""
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    value = function(*leaves)
    direction = torch.linspace(-1, 1, value.numel()).reshape(value.shape).to(value.dtype)
    return [value.detach(), *torch.autograd.grad(value, leaves, direction)]


def products():
    for dtype in TYPES:
        for m, k, n in SIZES + EMPTY:
            for left, a in two_forms(m, k, dtype):
                for right, b in two_forms(k, n, dtype):
                    name = f"mm {dtype} {m}x{k}x{n} {left} {right}"
                    yield name, with_gradients(torch.mm, a, b)
        for left, a in forms(6, 5, dtype):
            for right, b in forms(5, 4, dtype):
                yield f"mm {dtype} {left} {right}", with_gradients(torch.mm, a, b)


def added_products():
    for dtype in TYPES:
        biases = {
            "full": torch.randn(6, 4, dtype=dtype),
            "row": torch.randn(4, dtype=dtype),
            "column": torch.randn(6, 1, dtype=dtype),
            "one": torch.randn((), dtype=dtype),
            "turned": torch.randn(4, 6, dtype=dtype).t(),
        }
        a, b = torch.randn(6, 5, dtype=dtype), torch.randn(4, 5, dtype=dtype).t()
        for name, bias in biases.items():

            def addmm(c, a, b):
                return torch.addmm(c, a, b, beta=BETA, alpha=ALPHA)

            yield f"addmm {dtype} {name}", with_gradients(addmm, bias, a, b)
        unknown = torch.full((6, 4), float("nan"), dtype=dtype)
        yield f"addmm {dtype} beta 0", [torch.addmm(unknown, a, b, beta=0)]
        yield f"addmm {dtype} nothing inside", [torch.addmm(biases["full"], a[:, :0], b[:0])]
        out = torch.empty(4, 6, dtype=dtype).t()
        yield f"addmm {dtype} out", [torch.addmm(biases["row"], a, b, out=out), out]
        target = biases["turned"].clone()
        yield f"addmm_ {dtype}", [target.addmm_(a, b, beta=BETA), target]
        yield f"mm out {dtype}", [torch.mm(a, b, out=torch.empty(0, dtype=dtype))]


def batches():
    for dtype in TYPES:
        for left, a in forms(6, 5, dtype, (3,)):
            for right, b in forms(5, 4, dtype, (3,)):
                yield f"bmm {dtype} {left} {right}", with_gradients(torch.bmm, a, b)
        a, b = torch.randn(3, 6, 5, dtype=dtype), torch.randn(3, 5, 4, dtype=dtype)
        for name, shape in {"full": (3, 6, 4), "row": (4,), "each": (3, 1, 1)}.items():

            def baddbmm(c, a, b):
                return torch.baddbmm(c, a, b, beta=BETA, alpha=ALPHA)

            bias = torch.randn(shape, dtype=dtype)
            yield f"baddbmm {dtype} {name}", with_gradients(baddbmm, bias, a, b)
        same = a[:1].expand(3, -1, -1)
        yield f"bmm {dtype} one for all", with_gradients(torch.bmm, same, b)
        for shape in ((0, 6, 5), (3, 0, 5), (3, 6, 0)):
            left = torch.empty(shape, dtype=dtype)
            right = torch.empty(shape[0], shape[2], 4, dtype=dtype)
            yield f"bmm {dtype} {shape}", with_gradients(torch.bmm, left, right)
        target = torch.randn(3, 6, 4, dtype=dtype)
        yield f"baddbmm_ {dtype}", [target.baddbmm_(a, b, alpha=ALPHA)]
        wide = torch.randn(2, 1, 6, 5, dtype=dtype)
        yield f"matmul {dtype} broadcast", with_gradients(torch.matmul, wide, b)
        yield f"vmap {dtype}", [torch.vmap(torch.mm)(a, b)]


def vectors():
    for dtype in TYPES:
        strided = torch.randn(15, dtype=dtype)[::3]
        lengths = {"plain": torch.randn(5, dtype=dtype), "strided": strided}
        lengths["expanded"] = torch.randn(1, dtype=dtype).expand(5)
        if dtype.is_complex:
            lengths["conjugated"] = strided.conj()
        for form, x in lengths.items():
            for name, a in forms(6, 5, dtype):
                yield f"mv {dtype} {name} {form}", with_gradients(torch.mv, a, x)
            for other, y in lengths.items():
                yield f"dot {dtype} {form} {other}", with_gradients(torch.dot, x, y)
                yield f"vdot {dtype} {form} {other}", with_gradients(torch.vdot, x, y)
        a, x = torch.randn(6, 5, dtype=dtype), lengths["strided"]
        for name, shape in {"full": (6,), "one": ()}.items():

            def addmv(y, a, x):
                return torch.addmv(y, a, x, beta=BETA, alpha=ALPHA)

            bias = torch.randn(shape, dtype=dtype)
            yield f"addmv {dtype} {name}", with_gradients(addmv, bias, a, x)
        unknown = torch.full((6,), float("nan"), dtype=dtype)
        yield f"addmv {dtype} beta 0", [torch.addmv(unknown, a, x, beta=0)]
        bias = torch.randn(6, dtype=dtype)
        yield f"addmv {dtype} no columns", [torch.addmv(bias, a[:, :0], x[:0], beta=BETA)]
        yield f"mv {dtype} no rows", [torch.mv(a[:0], x)]
        yield f"dot {dtype} nothing", [torch.dot(x[:0], x[:0])]
        long = torch.randn(2, 100_000, dtype=dtype)
        yield f"dot {dtype} long", [torch.dot(*long) / 100_000]


def layers():
    for dtype in REAL:
        x, w, b = (torch.randn(s, dtype=dtype) for s in ((3, 7, 5), (4, 5), (4,)))
        yield f"linear {dtype}", with_gradients(F.linear, x, w, b)
        for one in (True, False):
            torch.backends.mkldnn.enabled = one
            yield from convolutions(dtype, f"{dtype} oneDNN {one}")
        torch.backends.mkldnn.enabled = True
        a = torch.randn(8, 8, dtype=dtype)
        yield f"solve {dtype}", [torch.linalg.solve(a + 9 * torch.eye(8, dtype=dtype), a)]


def convolutions(dtype, name):
    images = torch.randn(4, 6, 11, 9, dtype=dtype)
    weight, bias = torch.randn(8, 6, 3, 2, dtype=dtype), torch.randn(8, dtype=dtype)
    ways = [{}, {"stride": 2}, {"padding": (2, 1)}, {"dilation": 2}]
    for way in ways:

        def conv(x, w, b, way=way):
            return F.conv2d(x, w, b, **way)

        yield f"conv2d {name} {way}", with_gradients(conv, images, weight, bias)

    def grouped(x, w):
        return F.conv2d(x, w, groups=2, padding=1)

    yield f"conv2d {name} groups", with_gradients(grouped, images, weight[:, :3])
    yield f"conv2d {name} no bias", with_gradients(F.conv2d, images[:1], weight)
    last = images.to(memory_format=torch.channels_last)
    yield f"conv2d {name} channels last", with_gradients(F.conv2d, last, weight, bias)


def other_types():
    """BLAS has none of these: they are PyTorch's whoever serves the others."""
    for dtype in (torch.int64, torch.bfloat16, torch.float16):
        a, b = (torch.randint(-3, 4, shape).to(dtype) for shape in ((4, 5), (5, 3)))
        yield f"mm {dtype}", [torch.mm(a, b)]
        yield f"bmm {dtype}", [torch.bmm(a.expand(2, 4, 5), b.expand(2, 5, 3))]
        yield f"mv {dtype}", [torch.mv(a, b[:, 0])]


def refused():
    """What PyTorch refuses is refused in its words."""
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    tries = {
        "mm sizes": lambda: torch.mm(a, b),
        "mm types": lambda: torch.mm(a, b.t().double()),
        "addmm bias": lambda: torch.addmm(torch.randn(5), a, b.t()),
        "bmm sizes": lambda: torch.bmm(a.expand(2, 3, 4), b.expand(3, 3, 4).mT),
        "dot sizes": lambda: torch.dot(a[0], b[0, :2]),
        "mv sizes": lambda: torch.mv(a, a[:, 0]),
    }
    for name, function in tries.items():
        try:
            function()
        except RuntimeError as error:
            yield f"refused {name}", str(error).splitlines()[0]


def results():
    torch.manual_seed(1)
    found = {}
    for part in (products, added_products, batches, vectors, layers, other_types, refused):
        for name, values in part():
            assert name not in found, name
            found[name] = values
    return found


def differs(name, values, expected):
    if isinstance(values, str):
        return values != expected
    if len(values) != len(expected):
        return True
    for value, own in zip(values, expected, strict=True):
        if value.dtype != own.dtype or value.shape != own.shape:
            return True
        if own.numel() == 0:
            continue
        # Sums of up to 200 products, in another order.
        scale = max(1.0, own.abs().max().item())
        eps = (
            torch.finfo(own.dtype).eps if own.dtype.is_floating_point or own.dtype.is_complex else 0
        )
        if not torch.allclose(value.resolve_conj(), own, rtol=0, atol=200 * eps * scale):
            return True
    return False


def main():
    warnings.simplefilter("error")
    file, *compare = sys.argv[1:]
    found = results()
    if not compare:
        torch.save(found, file)
        return 0
    expected = torch.load(file)
    wrong = [name for name in found if name not in expected]
    wrong += [name for name in expected if name not in found]
    wrong += [
        name for name in found if name in expected and differs(name, found[name], expected[name])
    ]
    print(f"{len(found)} cases, {len(wrong)} differ: {wrong[:20]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
