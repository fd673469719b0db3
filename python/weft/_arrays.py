# SPDX-License-Identifier: Apache-2.0
"""Arrays that are not plain memory: refuse them, or find a plain stand-in.

The C module reads contiguous tensors and buffers by itself and calls `stage`
for everything else. The rules are those of the table in docs/guide/python.md;
tests/python/test_arrays.py holds both to it.
"""

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from weft._core import InvalidError, UnsupportedError

# What minloc and maxloc reduce: a value, and where it was found.
PAIRS = {
    "pair_f32": ("f4", "i4"),
    "pair_f64": ("f8", "i8"),
    "pair_i32": ("i4", "i4"),
    "pair_i64": ("i8", "i8"),
}


def pair_dtype(name: str) -> Any:
    """The NumPy type of one of PAIRS, with the fields value and index."""
    import numpy

    return numpy.dtype(list(zip(("value", "index"), PAIRS[name], strict=True)))


class Staged(NamedTuple):
    """What stands in for an array that C cannot read as it is.

    plain: an array that it can read
    back:  call it when the operation is over, to copy the result to the
           caller's array; None where plain is the same memory
    item:  bytes of one element where plain holds raw bytes, else 0
    """

    plain: Any
    back: Callable[[], None] | None = None
    item: int = 0


def stage(x: Any, write: bool) -> Staged:
    """Make `x` readable for C, and writable if `write`, or say why not."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return _stage_tensor(torch, x, write)
    if _is_buffer(x) or hasattr(x, "__dlpack__"):
        return _stage_array(_as_numpy(x), write)
    raise TypeError(
        f"weft takes torch tensors, NumPy arrays and buffers, not {type(x).__name__}: {x!r:.60}"
    )


def _stage_tensor(torch: Any, x: Any, write: bool) -> Staged:
    plain = _plain_tensor(torch, x)
    _check_layout(torch, plain)
    if write and x.requires_grad and x.is_leaf and torch.is_grad_enabled():
        raise InvalidError(
            "the tensor is a leaf that requires grad, and the result would be written to it: "
            "do it under torch.no_grad(), or pass x.grad or x.detach()"
        )
    with torch.no_grad():
        x = plain.detach()
        if write:
            _check_overlap(x.shape, x.stride())
        packed = x.resolve_conj().resolve_neg().contiguous()
        lazy = x.is_conj() or x.is_neg()
    same = packed.data_ptr() == x.data_ptr() and not lazy
    back = functools.partial(_copy_tensor, torch, x, packed) if write and not same else None
    if packed.dtype in _packed_types(torch):
        return Staged(packed.view(torch.uint8), back, packed.element_size())
    return Staged(packed, back)


def _plain_tensor(torch: Any, x: Any) -> Any:
    """The torch.Tensor that has the memory of `x`, which may be of a subclass."""
    kind = type(x)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        if torch._C._functorch.is_functorch_wrapped_tensor(x):
            raise TypeError("a tensor inside torch.func.grad or vmap has no memory of its own")
        return x
    for wrapper, remedy in (
        ("torch.distributed._functional_collectives.AsyncCollectiveTensor", None),
        ("torch.distributed.tensor.DTensor", "pass x.to_local() or x.full_tensor()"),
        ("torch._subclasses.fake_tensor.FakeTensor", "it only stands for a tensor"),
        ("torch.nn.parameter.UninitializedTensorMixin", "it has no shape yet; run the module once"),
    ):
        module, _, name = wrapper.rpartition(".")
        known = getattr(sys.modules.get(module), name, None)
        if known is not None and isinstance(x, known):
            if remedy is None:  # the one that will be a tensor in a moment
                return _plain_tensor(torch, x.trigger_wait())
            raise TypeError(f"weft cannot read the memory of a {name}: {remedy}")
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise TypeError(
            f"weft cannot read the memory of a {kind.__name__}, which overrides "
            "__torch_dispatch__: pass the tensor that it wraps"
        )
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        return x.as_subclass(torch.Tensor)


def _check_layout(torch: Any, x: Any) -> None:
    if x.layout != torch.strided:
        raise UnsupportedError(
            f"the tensor's layout is {x.layout}; pass x.to_dense(), or its parts one by one"
        )
    if x.device.type != "cpu":
        raise UnsupportedError(
            f"the tensor is on {x.device}, and weft moves host memory: pass x.cpu(), "
            "and copy the result back"
        )


def _packed_types(torch: Any) -> tuple[Any, ...]:
    """Element types that DLPack counts in less than bytes."""
    names = ("float4_e2m1fn_x2", "quint4x2", "quint2x4", "bits1x8", "bits2x4", "bits4x2")
    return tuple(getattr(torch, name) for name in names if hasattr(torch, name))


def _copy_tensor(torch: Any, target: Any, packed: Any) -> None:
    with torch.no_grad():
        target.copy_(packed)


def _is_buffer(x: Any) -> bool:
    try:
        memoryview(x).release()
    except TypeError:
        return False
    except (BufferError, ValueError):  # NumPy has types that a buffer has no word for
        return True
    return True


def _as_numpy(x: Any) -> Any:
    try:
        import numpy
    except ImportError:
        raise TypeError(
            f"a {type(x).__name__} that is not contiguous, or has elements weft does not know, "
            "needs NumPy to be copied; NumPy is not installed"
        ) from None
    if isinstance(x, numpy.ndarray):
        return x
    try:
        return numpy.asarray(memoryview(x)) if _is_buffer(x) else numpy.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"weft cannot read the memory of a {type(x).__name__}: {error}") from error


def _stage_array(x: Any, write: bool) -> Staged:
    import numpy

    if x.dtype.hasobject:
        raise TypeError("an array of Python objects holds pointers, which no other process can use")
    if write and not x.flags.writeable:
        raise InvalidError(
            "the array is read-only, and the result would be written to it; pass a writable one"
        )
    if write:
        _check_overlap(x.shape, x.strides, x.itemsize)
    packed = x
    if not x.dtype.isnative:
        packed = x.astype(x.dtype.newbyteorder("="), order="C")
    elif not x.flags.c_contiguous:
        packed = x.copy(order="C")
    back = functools.partial(numpy.copyto, x, packed) if write and packed is not x else None
    if packed.dtype.char not in "?bhilqBHILQefdFD" and not _is_pair(packed.dtype):
        return Staged(packed.reshape(-1).view(numpy.uint8), back, packed.itemsize)
    return Staged(packed, back)


def _is_pair(dtype: Any) -> bool:
    """Has it the layout of one of PAIRS, whatever the names of its fields?"""
    fields = [dtype.fields[name] for name in dtype.names or ()]
    words = tuple(kind.str[1:] for kind, *_ in fields)
    return (
        words in PAIRS.values()
        and [offset for _, offset, *_ in fields] == [0, dtype.itemsize // 2]
        and dtype.itemsize == sum(kind.itemsize for kind, *_ in fields)
    )


def _check_overlap(shape: Iterable[int], strides: Iterable[int], item: int = 1) -> None:
    """Refuse to write where two elements may have one address.

    Seen from the smallest stride up, each must step over all that the smaller
    ones can reach.
    """
    reach = item - 1
    steps = sorted((abs(stride), n) for n, stride in zip(shape, strides, strict=True) if n != 1)
    if any(n == 0 for _, n in steps):
        return
    for stride, n in steps:
        if stride <= reach:
            raise InvalidError(
                "elements of the array share memory (it is expanded, or its strides overlap), "
                "and the result would be written to it; pass a copy"
            )
        reach += stride * (n - 1)
