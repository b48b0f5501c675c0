"""What can be read of an argument of any kind, and that the program sees nothing of it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.testing._internal import two_tensor
from torch.utils._python_dispatch import TorchDispatchMode

from stepscope.tracer.runtime.stats import Part
from stepscope.tracer.runtime.stats.parts import parts
from stepscope.tracer.runtime.stats.readers import MixedReader, reader_for, why_not_compiled
from stepscope.tracer.runtime.stats.snapshots import joined, runs
from stepscope.tracer.runtime.stats.torch_ops import TorchReader
from tests.tracer.runtime.stats.oracle import check, row_of

ALL = 1 << 40
TwoTensor: Any = two_tensor.TwoTensor


class Plain(Tensor):
    """A subclass that looks at each function called on it."""

    seen: list[Any] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


class Broken(Tensor):
    def __tensor_flatten__(self) -> Any:
        raise ZeroDivisionError("no inside")


def only(value: object) -> Part:
    found = parts(value)
    assert len(found) == 1
    return found[0]


def read(part: Part) -> Any:
    assert part.tensor is not None
    return reader_for([part.tensor], ALL)([part.tensor]).wait()[0]


def test_the_toolchain_works_here() -> None:
    assert why_not_compiled() is None


@pytest.mark.parametrize("value", [None, 3, 2.5, "x", [torch.ones(2)], (), object()])
def test_other_arguments_have_no_parts(value: object) -> None:
    assert parts(value) == []


@pytest.mark.parametrize("make", [lambda t: t, torch.nn.Parameter, torch.nn.Buffer])
def test_plain_tensors_are_read_as_they_are(make: Any) -> None:
    tensor: Tensor = make(torch.arange(6.0).reshape(2, 3))
    part = only(tensor)
    assert (part.name, part.dtype, part.numel, part.skipped) == (None, "float32", 6, None)
    assert part.tensor is tensor
    check(read(only(tensor)), row_of(tensor))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("change", [lambda t: t, torch.conj, lambda t: t.t(), lambda t: t.conj().t()[1:]])
def test_complex_by_parts(dtype: torch.dtype, change: Any) -> None:
    tensor = change(torch.randn(30, 40, dtype=dtype, requires_grad=True))
    real, imag = parts(tensor)
    assert [(p.name, p.dtype, p.numel) for p in (real, imag)] == [
        (name, str(dtype).removeprefix("torch."), tensor.numel()) for name in ("real", "imag")
    ]
    resolved = torch.view_as_real(tensor.detach().resolve_conj())
    check(read(real), row_of(resolved[..., 0]))
    check(read(imag), row_of(resolved[..., 1]))


def test_complex_half() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensor = torch.tensor([1 + 2j, float("nan")]).to(torch.complex32)
    real, imag = parts(tensor)
    assert (read(real)["nan"], read(imag)["max"]) == (1, 2.0)


def test_a_pending_negation_is_carried_out() -> None:
    tensor = torch.imag(torch.randn(40, dtype=torch.complex64).conj())
    assert tensor.is_neg()
    check(read(only(tensor)), row_of(tensor.resolve_neg()))
    assert tensor.is_neg()


def test_sparse_tensors_by_their_values() -> None:
    dense = torch.tensor([[0.0, 2.0], [float("inf"), 0.0]])
    twice = torch.sparse_coo_tensor(torch.tensor([[0, 0], [1, 1]]), torch.ones(2), (2, 2), check_invariants=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sparse = [dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc(), dense.to_sparse_bsr((1, 1)), twice]
    for tensor in sparse:
        part = only(tensor)
        assert (part.name, part.numel, part.dtype) == ("values", 2, "float32")
        assert read(part)["first_bad"] == (-1 if tensor is twice else read(part)["first_bad"])
    assert read(only(sparse[0]))["positive_infinity"] == 1
    assert read(only(twice))["max"] == 1.0  # as stored: the two are one element of value 2


def test_quantised_tensors_by_their_integers() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensor = torch.quantize_per_tensor(torch.tensor([0.0, 1.0, 2.0]), 0.5, 3, torch.quint8)
        part = only(tensor)
    assert (part.name, part.dtype, part.numel) == ("int_repr", "quint8", 3)
    assert (read(part)["exact_min"], read(part)["exact_max"]) == (3, 7)


def test_what_has_no_memory_says_so() -> None:
    with FakeTensorMode():
        fake = torch.ones(3)
    freed = torch.ones(8)
    freed.untyped_storage().resize_(0)
    reasons = {
        "meta": torch.ones(3, device="meta"),
        "fake": fake,
        "freed": freed,
        "_mkldnn": torch.ones(3).to_mkldnn(),
    }
    for word, tensor in reasons.items():
        part = only(tensor)
        assert part.tensor is None
        assert part.skipped is not None
        assert word in part.skipped
        assert part.dtype == "float32"


def test_dtypes_without_numbers_say_so() -> None:
    part = only(torch.ones(4, dtype=torch.uint8).view(torch.bits8))
    assert (part.tensor, part.dtype) == (None, "bits8")
    assert "bits8" in (part.skipped or "")


def test_wrapper_subclasses_by_their_inner_tensors() -> None:
    inner = TwoTensor(torch.ones(2), torch.zeros(2))
    assert [p.name for p in parts(inner)] == ["a", "b"]
    outer = TwoTensor(inner, TwoTensor(torch.full((2,), 7.0), torch.zeros(2)))
    found = parts(outer)
    assert [p.name for p in found] == ["a.a", "a.b", "b.a", "b.b"]
    assert read(found[2])["mean"] == 7.0
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert "_values" in [p.name for p in parts(jagged)]


def test_a_subclass_sees_nothing() -> None:
    tensor = torch.arange(4.0).as_subclass(Plain)
    Plain.seen.clear()
    part = only(tensor)
    assert read(part)["max"] == 3.0
    assert Plain.seen == []


def test_nothing_raises() -> None:
    part = only(torch.ones(3).as_subclass(Broken))
    assert part.tensor is None
    assert "ZeroDivisionError" in (part.skipped or "")


def test_vmapped_tensors_are_left_alone() -> None:
    found: list[Part] = []

    def look(x: Tensor) -> Tensor:
        found.extend(parts(x))
        return x * 2

    torch.vmap(look)(torch.ones(3, 4))
    assert [p.tensor for p in found] == [None]


@pytest.mark.parametrize("make", [lambda: torch.ones(3), lambda: torch.ones(3, dtype=torch.complex64).conj()])
@pytest.mark.parametrize("reader", [reader_for, TorchReader])
def test_modes_see_nothing(make: Any, reader: Any) -> None:
    seen: list[Any] = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class Dispatches(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    tensor = make()
    with Functions(), Dispatches():  # type: ignore[no-untyped-call]
        tensors = [part.tensor for part in parts(tensor)]
        rows = reader(tensors, ALL)(tensors).wait()
    assert seen == []
    assert rows[0]["mean"] == 1.0


def test_fake_mode_does_not_reach_the_values() -> None:
    tensor = torch.ones(3)
    with FakeTensorMode():
        assert read(only(tensor))["mean"] == 1.0


def test_autograd_records_nothing() -> None:
    tensor = torch.randn(5, dtype=torch.complex64, requires_grad=True)
    version = tensor._version
    for part in parts(tensor):
        assert part.tensor is not None
        assert part.tensor.grad_fn is None
        read(part)
    assert (tensor._version, tensor.grad_fn, tensor.requires_grad) == (version, None, True)


def test_rows_of_several_devices_come_in_the_callers_order() -> None:
    tensors = [torch.full((3,), float(i)) for i in range(4)]
    readers: Any = [(reader_for(tensors[::2], ALL), [0, 2]), (TorchReader(tensors[1::2], 4), [1, 3])]
    mixed = MixedReader(readers, 4)
    assert mixed.looked_at == [3, 1, 3, 1]
    rows = mixed(tensors).rows()
    assert rows is not None
    np.testing.assert_array_equal(rows["mean"], [0, 1, 2, 3])
    assert mixed(tensors).in_order is None


def test_rows_that_stand_together_by_device_are_not_moved() -> None:
    tensors = [torch.full((3,), float(i)) for i in range(4)]
    readers: Any = [(reader_for(tensors[:3], ALL), [0, 1, 2]), (TorchReader(tensors[3:], 4), [3])]
    block = MixedReader(readers, 4)(tensors)
    found = runs([block])
    assert found == block.in_order
    np.testing.assert_array_equal(joined([one.wait() for one in found])["mean"], [0, 1, 2, 3])


def test_without_a_compiler_torch_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    from stepscope.tracer.runtime import compiled
    from stepscope.tracer.runtime.stats import cpu

    def fails(source: str) -> None:
        raise OSError("no compiler")

    monkeypatch.setattr(compiled, "_found", {})
    monkeypatch.setattr(cpu, "build_library", fails)
    assert isinstance(reader_for([torch.ones(2)], ALL), TorchReader)
    assert "no compiler" in (why_not_compiled() or "")
