"""Settings: what is taken, what is refused and how it is said, and that they survive the environment."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stepscope
from stepscope.tracer.config import (
    LEVELS,
    MOST,
    MOST_ELEMENTS,
    VARIABLES,
    ConfigError,
    TraceConfig,
    changed,
    from_environment,
    make_config,
    option_of,
    to_environment,
)
from stepscope.tracer.runtime import active

NAMES = st.text(st.characters(exclude_characters=",\0", exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: text == text.strip()
)
STEPS = st.tuples(st.integers(0, MOST - 1), st.none() | st.integers(1, MOST)).filter(
    lambda pair: pair[1] is None or pair[0] < pair[1]
)
CONFIGS = st.builds(
    TraceConfig,
    directory=st.sampled_from([Path("/logs"), Path("/a folder/ü")]),
    level=st.sampled_from(LEVELS),
    provenance=st.booleans(),
    kernels=st.lists(NAMES, max_size=3).map(tuple),
    args=st.lists(NAMES, max_size=3).map(tuple),
    steps=st.none() | STEPS,
    every=st.integers(1, MOST),
    max_bytes_per_tensor=st.none() | st.integers(1, MOST),
    verify_before=st.booleans(),
    red_zones=st.booleans(),
    save_quota_bytes=st.integers(0, MOST),
    profile=st.none() | STEPS,
    check_recompute=st.booleans(),
    check_eager=st.integers(0, MOST),
    elements=st.integers(0, MOST_ELEMENTS),
)


@given(CONFIGS)
def test_every_setting_survives_the_environment(config: TraceConfig) -> None:
    assert from_environment(to_environment(config)) == config


def test_every_setting_has_a_variable() -> None:
    config = TraceConfig(Path("/x"))
    assert set(to_environment(config)) == {VARIABLES[field.name] for field in fields(TraceConfig)}
    assert VARIABLES["save_quota_bytes"] == "STEPSCOPE_SAVE_QUOTA"
    assert option_of("max_bytes_per_tensor") == "--max-bytes-per-tensor"


@given(STEPS, st.integers(1, 50), st.integers(0, 200))
def test_steps_are_chosen_as_a_slice_chooses(steps: tuple[int, int | None], every: int, offset: int) -> None:
    first = steps[0] % 100
    stop = None if steps[1] is None else first + 1 + steps[1] % 100
    config = TraceConfig(Path("x"), steps=(first, stop), every=every)
    chosen = set(range(1000)[first:stop:every])
    assert config.wants_step(offset) == (offset in chosen)


def test_every_counts_from_zero_without_steps() -> None:
    config = TraceConfig(Path("x"), every=3)
    assert [step for step in range(8) if config.wants_step(step)] == [0, 3, 6]


@pytest.mark.parametrize(
    ("text", "steps"),
    [("3:5", (3, 5)), ("3:", (3, None)), ("3", (3, 4)), (":2", (0, 2)), (":", (0, None)), (" 7 ", (7, 8))],
)
def test_steps_as_they_are_typed(text: str, steps: tuple[int, int | None]) -> None:
    assert make_config("x", steps=text).steps == steps


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("4M", 4_000_000), ("64MiB", 64 << 20), ("1GB", 10**9), ("1.5k", 1500), ("2ki", 2048), ("8B", 8)],
)
def test_bytes_as_they_are_typed(text: str, size: int) -> None:
    assert make_config("x", max_bytes_per_tensor=text).max_bytes_per_tensor == size
    assert make_config("x", save_quota_bytes=text).save_quota_bytes == size


def test_kernels_match_whole_names_in_their_case() -> None:
    config = make_config("x", kernels="triton_*softmax*, extern_kernels.mm")
    assert config.kernels == ("triton_*softmax*", "extern_kernels.mm")
    assert config.wants_kernel("triton_per_fused_softmax_0")
    assert config.wants_kernel("extern_kernels.mm")
    for name in ("extern_kernels.bmm", "mm", "extern_kernels.mm.out", "Triton_softmax"):
        assert not config.wants_kernel(name)
    assert TraceConfig(Path("x")).wants_kernel("anything")


def test_an_argument_is_wanted_by_any_of_its_names() -> None:
    config = make_config("x", args=["buf1?", "out"])
    assert config.wants_argument("buf12", None)
    assert config.wants_argument("buf3", "out")
    assert not config.wants_argument("buf3", None)
    assert not config.wants_argument()
    assert TraceConfig(Path("x")).wants_argument()


BAD: list[tuple[str, Any]] = [
    ("level", "loud"), ("steps", "5:3"), ("steps", "3:3"), ("steps", "-1"), ("steps", "a:b"),
    ("steps", "1:2:3"), ("steps", "9" * 19),
    ("every", "0"), ("every", "two"), ("every", "9" * 19), ("max_bytes_per_tensor", "0"),
    ("max_bytes_per_tensor", "4Q"), ("max_bytes_per_tensor", "-1"), ("max_bytes_per_tensor", "1.5"),
    ("save_quota_bytes", "lots"), ("save_quota_bytes", "9999999999T"), ("verify_before", "maybe"), ("provenance", "2"),
    ("elements", "many"), ("elements", "1025"), ("kernels", "a\0b"),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "value"), BAD)
def test_what_cannot_be_is_one_sentence_that_names_the_setting(setting: str, value: Any) -> None:
    with pytest.raises(ConfigError) as error:
        make_config("x", **{setting: value})
    assert str(error.value).startswith(setting)
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError) as error:
        from_environment({"STEPSCOPE_TRACE": "x", VARIABLES[setting]: value})
    assert str(error.value).startswith(VARIABLES[setting])


@pytest.mark.parametrize(
    ("setting", "value"),
    [("every", True), ("every", 1.5), ("steps", (3,)), ("steps", 3), ("kernels", ("a,b",)), ("args", ("",)),
     ("args", 5), ("verify_before", 1), ("kernels", "not a tuple"), ("save_quota_bytes", -1)],
)  # fmt: skip
def test_the_class_itself_refuses_too(setting: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=setting):
        replace(TraceConfig(Path("x")), **{setting: value})


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("elements", "-1", "is -1; it must be an integer from 0 to 1,024"),
        ("every", "-3", "is -3; it must be an integer of at least 1"),
        ("elements", "1.5", "is '1.5'; it must be an integer"),
    ],
)
def test_a_whole_number_that_cannot_be_is_told_with_its_bounds(setting: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_config("x", **{setting: value})
    assert str(error.value) == f"{setting} {words}"


def test_an_error_survives_pickle() -> None:
    error = pickle.loads(pickle.dumps(ConfigError("every", "is 0")))
    assert (str(error), error.setting) == ("every is 0", "every")


def test_an_empty_variable_is_not_set() -> None:
    environment = {name: "" for name in VARIABLES.values()} | {"STEPSCOPE_TRACE": "x"}
    assert from_environment(environment) == TraceConfig(Path("x"))


def test_settings_change_but_for_the_fixed_ones() -> None:
    config = TraceConfig(Path("x"), level="launches", every=2)
    assert changed(config, level="values", steps="3:") == replace(config, level="values", steps=(3, None))
    for name in ("directory", "provenance"):
        with pytest.raises(ConfigError, match=f"{name} cannot be changed while"):
            changed(config, **{name: "y"})
    with pytest.raises(ConfigError, match="colour is not a setting"):
        changed(config, colour="red")


class _Recorder:
    def __init__(self) -> None:
        self.config = TraceConfig(Path("x"))

    def configure(self, config: TraceConfig) -> None:
        self.config = config


def test_configure_reaches_the_attached_recorder_or_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stepscope.configure(level="values") is False
    attached = _Recorder()
    monkeypatch.setattr(active, "_active", attached)
    assert stepscope.configure(level="values", kernels="mm*") is True
    assert (attached.config.level, attached.config.kernels) == ("values", ("mm*",))
    with pytest.raises(ConfigError, match="level is 'loud'"):
        stepscope.configure(kernels="other", level="loud")
    assert attached.config.kernels == ("mm*",)


def test_trace_takes_every_setting(tmp_path: Path) -> None:
    made = stepscope.trace(
        tmp_path, level="save", provenance=False, kernels="a*,b", args=["out"], steps="3:5", every=2,
        max_bytes_per_tensor="4M", verify_before=True, save_quota_bytes="1k", lifetimes="off", elements="64",
    )  # fmt: skip
    assert made.config == TraceConfig(
        tmp_path, "save", False, ("a*", "b"), ("out",), (3, 5), 2, 4_000_000, True, 1000, "off", elements=64
    )
