"""Parameters of policies and predictors: read from the signature, converted by annotation."""

from __future__ import annotations

from typing import Literal

import pytest

from cotenant.errors import ConfigError
from cotenant.model.params import Params, parameters_of


class Sample(Params):
    def __init__(
        self,
        *,
        factor: float = 1.5,
        count: int = 3,
        eager: bool = False,
        order: Literal["fast", "slow"] = "fast",
        steps_s: tuple[float, ...] = (3600.0,),
        limit: int | None = None,
        label: str = "x",
    ) -> None:
        if count < 0:
            raise ConfigError(f"count must not be negative, found {count}")
        self.factor = factor
        self.count = count
        self.eager = eager
        self.order = order
        self.steps_s = steps_s
        self.limit = limit
        self.label = label


class Plain(Params):
    pass


def test_every_kind_of_value_is_read_from_words() -> None:
    made = Sample.from_strings(
        {
            "factor": "2",
            "count": "7",
            "eager": "On",
            "order": "slow",
            "steps_s": "60/3600.5",
            "limit": "9",
            "label": "a b",
        }
    )
    assert made.get_params() == {
        "factor": 2.0,
        "count": 7,
        "eager": True,
        "order": "slow",
        "steps_s": (60.0, 3600.5),
        "limit": 9,
        "label": "a b",
    }
    assert isinstance(made.factor, float)


def test_none_is_read_where_none_is_allowed() -> None:
    assert Sample.from_strings({"limit": "none"}).limit is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"count": "1.5"}, "parameter count of Sample must be int, found '1.5'"),
        ({"factor": "fast"}, "must be float"),
        ({"factor": "nan"}, "must be float"),
        ({"eager": "maybe"}, "must be bool"),
        ({"order": "medium"}, "must be one of fast, slow"),
        ({"steps_s": "1/b"}, "floats separated by /"),
        ({"limit": "some"}, "must be int or none"),
    ],
)
def test_a_wrong_value_names_parameter_type_and_what_was_found(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Sample.from_strings(given)
    assert message in str(caught.value)


def test_an_unknown_parameter_lists_all_and_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        Sample.from_strings({"factr": "2"})
    text = str(caught.value)
    assert 'no parameter "factr"; did you mean "factor"?' in text
    assert "factor: float = 1.5" in text
    assert "limit: int or none = None" in text


def test_a_class_without_parameters_says_none() -> None:
    assert parameters_of(Plain) == ()
    with pytest.raises(ConfigError, match="its parameters: none"):
        Plain.from_strings({"a": "1"})


def test_set_params_keeps_the_checks_of_init_and_changes_nothing_on_error() -> None:
    sample = Sample()
    with pytest.raises(ConfigError, match="not be negative"):
        sample.set_params(count=-1)
    with pytest.raises(ConfigError, match="no parameter"):
        sample.set_params(cuont=1)
    assert sample.count == 3
    assert sample.set_params(count=5) is sample
    assert sample.count == 5
    assert sample.factor == 1.5


def test_clone_copies_parameters_and_drops_what_was_learned() -> None:
    sample = Sample(count=4)
    sample.learned_ = 7  # type: ignore[attr-defined]
    copy = sample.clone()
    assert copy is not sample
    assert copy.get_params() == sample.get_params()
    assert not hasattr(copy, "learned_")


def test_positional_parameters_are_refused() -> None:
    class Positional(Params):
        def __init__(self, factor: float = 1.0) -> None:
            self.factor = factor

    with pytest.raises(ConfigError, match="keyword-only"):
        Positional.parameters()
