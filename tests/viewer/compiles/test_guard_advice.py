"""Which change avoids the recompiles of a guard."""

from __future__ import annotations

import pytest

from stepscope.viewer.compiles.queries.guard_advice import advice
from stepscope.viewer.compiles.queries.guard_text import failed_guards
from stepscope.viewer.findings.compiles.guard_changes import GuardChange


@pytest.mark.parametrize(
    ("source", "values", "guard", "said"),
    [
        ("x.size()[1]", ["4", "8"], "tensor 'x' size mismatch at index 1", "mark_dynamic(x, 1)"),
        ("x.size()[0]", ["8", "1"], "tensor 'x' size mismatch at index 0", "A size of 0 or 1 has a graph of its own"),
        (
            "x.size()[0]",
            ["1", "8", "9"],
            "tensor 'x' size mismatch at index 0",
            "mark_dynamic(x, 0) before the first call with",
        ),
        (
            "x.size()[0]",
            ["0", "2", "3"],
            "tensor 'x' size mismatch at index 0",
            "sizes of 0 and 1 have graphs of their",
        ),
        ("x.size()[0]", ["2", "10"], "tensor 'x' size mismatch at index 0", "compiles one graph for all sizes."),
        (
            "x.size()[1]",
            ["5", "7", "9"],
            "tensor 'x' size mismatch at index 1",
            "raises an error that names",
        ),
        ("self.__self__.bias.size()[0]", ["4", "8"], "tensor 'b' size mismatch at index 0", "share the code of this"),
        ("x.stride()[0]", ["4", "8"], "tensor 'x' stride mismatch at index 0", ".contiguous()"),
        ("self.step", ["0", "1"], "self.step == 1", "allow_unspec_int_on_nn_module"),
        (
            "(x.size()[2] - 1) // 2",
            ["77", "62"],
            "(x.size()[2] - 1) // 2 == 77",
            "padded to a few sizes need only a few",
        ),
        ("n", ["0", "1", "7", "8"], "n == 7", "dynamic=True"),
        ("n", ["7", "8", "9"], "n == 8", "Each value of n needs a graph"),
        ("scale", ["0.5", "1.5"], "scale == 0.5", "a tensor needs no guard"),
        ("betas[0]", ["0.95", "0.9", "0.85"], "betas[0] == 0.95", "whose value the compiled code needs"),
        ("self.param_groups[0]['betas'][0]", ["0.95", "0.9", "0.85"], "", "cycle_momentum=False"),
        ("self.param_groups[1]['lr']", ["0.1", "0.09"], "", "lr=torch.tensor(...)"),
        ("mode", ["'a'", "'b'"], "mode == 'b'", "string"),
        ("len(keep)", ["1", "2"], "len(G['keep']) == 2", "Each length of keep needs a graph of its own."),
        ("len(batch)", ["4", "3"], "len(batch) != 4", "a dictionary needs the same keys in all calls."),
        ("GLOBAL_STATE changed: grad_mode", [], "GLOBAL_STATE changed: grad_mode", "grad mode"),
        ("GLOBAL_STATE changed: num_threads", [], "GLOBAL_STATE changed: num_threads", "torch.set_num_threads once"),
        ("GLOBAL_STATE changed: allow_tf32", [], "GLOBAL_STATE changed: allow_tf32", "precision of matrix products"),
        ("keys of batch", ["'a'", "'b'"], "KeyError on batch['a']", "batch needs the same keys"),
        ("lifetime of self", [], "Cache line invalidated because L['self'] got deallocated", "create self once"),
        (
            "lifetime of ___stack0",
            [],
            "Cache line invalidated because L['___stack0'] got deallocated",
            "avoid the graph",
        ),
        ("requires_grad of x", ["True", "False"], "tensor 'x' requires_grad mismatch", "combination of inputs"),
        ("___check_type_id(x, 1)", [], "___check_type_id(x, 1)", "type of this object"),
    ],
)
def test_advice(source: str, values: list[str], guard: str, said: str) -> None:
    assert said in (advice(source, values, guard) or "")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("CPU, BackendSelect, ADInplaceOrView", "CPU, BackendSelect", "x is now a tensor of torch.inference_mode()"),
        ("CPU, ADInplaceOrView", "ADInplaceOrView", "dispatch key set of x changed from DispatchKeySet(CPU, "),
        ("CPU", "CPU, ADInplaceOrView", "x is no longer a tensor of torch.inference_mode()"),
    ],
)
def test_tensors_of_inference_mode_are_told_in_words(before: str, after: str, said: str) -> None:
    values = [f"DispatchKeySet({keys})" for keys in (before, after)]
    assert GuardChange("dispatch key set of x", values, "", 1).text.startswith(said)


def test_what_is_not_known_has_no_advice() -> None:
    assert advice("x is None", [], "x is None") is None
    assert advice("f", ["<function g>", "<function h>"], "f == <function g>") is None


@pytest.mark.parametrize(
    ("guard", "source", "expected"),
    [
        ("len(G['keep']) == 2", "len(keep)", "2"),
        ("len(batch) != 4", "len(batch)", "4"),
        ("len(L['batch']) != 4", "len(batch)", "4"),
        ("L['self'].step == 0", "self.step", "0"),
        ("not G['__import___main__'].acts", "acts", "empty"),
        ("not ___dict_contains('a', L['x'])", "not ___dict_contains('a', L['x'])", None),
        ("L['xs'][0] == L['n']", "xs[0]", "L['n']"),
        ("options.L['a'] == 1", "options.L['a']", "1"),
        ("list(dict.keys(L['batch']))[0] == 'image'", "keys of batch", "'image'"),
        ("L['self']._modules['head']._buffers['mean'] == 1", "self.head.mean", "1"),
        (
            "tensor 'self._modules['7']._parameters['bias']' requires_grad mismatch. expected requires_grad=1. Guard"
            " failed on a parameter, consider using torch._dynamo.config.force_parameter_static_shapes = False",
            "requires_grad of self.7.bias",
            "True",
        ),
        ("tensor 'x' requires_grad mismatch. expected requires_grad=0", "requires_grad of x", "False"),
        (
            "len(G['__import___main__'].acts['a']) == 3",
            "len(acts['a'])",
            "3",
        ),
    ],
)
def test_variables_of_guards_have_their_names_in_the_program(guard: str, source: str, expected: str | None) -> None:
    (found,) = failed_guards(f"0/0: {guard}")
    assert (found.source, found.expected, found.guard) == (source, expected, guard)
