# SPDX-License-Identifier: Apache-2.0
"""Values, gradients, second derivatives, tangents and batches of every operation."""

import jobs
import pytest
import torch
import torch.autograd.forward_ad as fwad
from cases import Case, cases, inputs, real_cases
from weft import mpi

close = torch.testing.assert_close


def objective(y, w):
    """Not linear, so that second derivatives are not zero."""
    value = (y * y * w).sum() + (y * w).sum()
    return value.real if value.is_complex() else value


def weights(ys, salt):
    result = []
    for rank, y in enumerate(ys):
        gen = torch.Generator().manual_seed(31 * salt + rank)
        result.append(torch.randn(y.shape, dtype=y.dtype, generator=gen))
    return result


def check_all(comm, names, dtype):
    for case in [*cases(), *real_cases()]:
        if case.name in names:
            try:
                check(comm, case, dtype)
            except BaseException as error:
                raise AssertionError(f"{case.name}, {dtype}: {error!r}") from error
    assert comm.history == 0


def check(comm, case, dtype):
    size, rank = comm.size, comm.rank
    zs = [z.requires_grad_() for z in inputs(case, size, dtype)]
    xs = [z.sin() for z in zs]
    ys = case.all_ranks(xs)
    ws = weights([y.detach() for y in ys], 1)
    if not all(torch.isfinite(y).all() for y in ys):
        ws = [
            torch.zeros_like(w) if not torch.isfinite(y).all() else w
            for y, w in zip(ys, ws, strict=True)
        ]
        ys = [torch.where(torch.isfinite(y), y, 0.0) for y in ys]
    value = sum(objective(y, w) for y, w in zip(ys, ws, strict=True))
    value = value + sum((z * 0).sum().abs() for z in zs)  # also if nothing depends on one
    grads = torch.autograd.grad(value, zs, create_graph=True)
    vs = weights(grads, 2)
    curved = sum(
        (g * v).sum().real if g.is_complex() else (g * v).sum()
        for g, v in zip(grads, vs, strict=True)
    )
    curved = curved + sum((z * z * 0).sum().abs() for z in zs)
    seconds = torch.autograd.grad(curved, zs)

    z = zs[rank].detach().clone().requires_grad_()
    before = z.detach().clone()
    y = case.ours(comm, z.sin())
    y = torch.where(torch.isfinite(y), y, torch.zeros_like(y)) if y.numel() else y
    close(y, ys[rank])
    loss = comm.join(objective(y, ws[rank]))
    (grad,) = torch.autograd.grad(loss, z, create_graph=True)
    close(grad, grads[rank])
    curve = (grad * vs[rank]).sum()
    mpi.backward(curve.real if curve.is_complex() else curve, comm)
    close(z.grad, seconds[rank])
    close(z.detach(), before, rtol=0, atol=0)
    with torch.no_grad():  # with gaps between the numbers
        x = z.detach().sin()
        y = case.ours(comm, torch.stack([x, x], -1)[..., 0])
        close(torch.where(torch.isfinite(y), y, torch.zeros_like(y)), ys[rank].detach())
    comm.detach_history()
    check_tangent(comm, case, dtype)
    check_batch(comm, case, dtype)


def check_tangent(comm, case, dtype):
    xs = inputs(case, comm.size, dtype, salt=3)
    ts = inputs(case, comm.size, dtype, salt=4)
    with fwad.dual_level():
        ys = case.all_ranks([fwad.make_dual(x, t) for x, t in zip(xs, ts, strict=True)])
        expected = fwad.unpack_dual(ys[comm.rank]).tangent
        y = fwad.unpack_dual(case.ours(comm, fwad.make_dual(xs[comm.rank], ts[comm.rank])))
        if expected is None:
            expected = torch.zeros_like(y.primal)
        got = torch.zeros_like(y.primal) if y.tangent is None else y.tangent
        close(got, expected)


def check_batch(comm, case, dtype):
    """A batch is one message: as many operations as without."""
    batch = [inputs(case, comm.size, dtype, salt=5 + b) for b in range(3)]
    own = torch.stack([xs[comm.rank] for xs in batch], -1)
    before = comm._number
    y = torch.vmap(lambda x: case.ours(comm, x), in_dims=-1)(own)
    once = comm._number - before
    case.ours(comm, own[..., 0].contiguous())
    assert once <= comm._number - before - once, (once, comm._number - before)
    for b, xs in enumerate(batch):
        close(y[b], case.all_ranks(xs)[comm.rank])


@pytest.mark.parametrize("size", jobs.SIZES)
def test_every_operation_in_double(size):
    names = [case.name for case in [*cases(), *real_cases()]]
    jobs.run(size, check_all, names, torch.float64)


@pytest.mark.parametrize("size", (2, 3) if not jobs.FULL else jobs.SIZES)
def test_every_linear_operation_in_complex(size):
    jobs.run(size, check_all, [case.name for case in cases()], torch.complex128)


def first_order(comm, dtype):
    """Small whole numbers, which all types hold."""
    for case in cases():
        xs = [
            torch.randint(-3, 4, x.shape).to(dtype) for x in inputs(case, comm.size, torch.float32)
        ]
        gathered = [comm.Bcast(x, 0) for x in xs]
        xs = [x.detach().requires_grad_() for x in gathered]
        if "avg" in case.name:
            continue
        ys = case.all_ranks(xs)
        sum((y.sum() if not y.is_complex() else y.real.sum()) for y in ys).backward()
        x = xs[comm.rank].detach().clone().requires_grad_()
        y = case.ours(comm, x)
        close(y, ys[comm.rank])
        mpi.backward(y.real.sum() if y.is_complex() else y.sum())
        expected = xs[comm.rank].grad
        close(x.grad, torch.zeros_like(x) if expected is None else expected)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.complex64], ids=str
)
def test_gradients_in_every_other_type(dtype):
    jobs.run(3, first_order, dtype)


def function_transforms(comm):
    """torch.func: gradients, tangents, and batches of gradients."""
    case = Case(
        "", lambda r, n: (3,), lambda c, x: c.Allreduce(x), lambda xs: [sum(xs) for _ in xs]
    )
    xs = inputs(case, comm.size, torch.float64)
    x = xs[comm.rank]

    def f(x):
        return comm.join((comm.Allreduce(x.sin()) ** 2).sum())

    whole = [z.clone().requires_grad_() for z in xs]
    s = sum(z.sin() for z in whole)
    grads = torch.autograd.grad(comm.size * (s**2).sum(), whole)
    close(torch.func.grad(f)(x), grads[comm.rank])
    value, tangent = torch.func.jvp(f, (x,), (torch.ones_like(x),))
    close(value, (s.detach() ** 2).sum())
    close(tangent, sum((2 * s.detach() * z.detach().cos()).sum() for z in whole))
    batch = torch.stack([x, 2 * x])
    both = torch.vmap(torch.func.grad(f))(batch)
    close(both[0], grads[comm.rank])
    close(both[1], torch.func.grad(f)(2 * x))
    assert comm.history == 0


@pytest.mark.parametrize("size", (1, 3))
def test_torch_func(size):
    jobs.run(size, function_transforms)
