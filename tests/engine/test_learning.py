"""What samples measured beside others reaches a forecast that learns, and only what one set explains."""

from typing import Any

from cotenant import registry
from cotenant.checks.scenarios import scenario
from cotenant.model import events as ev
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.policies.packing import BestFit
from cotenant.testing import FixedForecast, FixedTruth, Harness


class Pupil(FixedForecast):
    """Writes down what it is taught, and believes it at once."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.taught: list[tuple[str, tuple[str, ...], str, float]] = []

    def learn(self, model: str, beside: tuple[str, ...], device_type: str, speed: float) -> None:
        self.taught.append((model, beside, device_type, speed))
        self.co[model, beside] = min(speed, 1.0)
        self.version += 1


def _run(pupil: Pupil, **options: Any) -> None:
    truth = FixedTruth({("m", ("n",)): 0.5, ("n", ("m",)): 0.8})
    rules = Settings(sample_s=30.0, sample_noise=0.0, **options)
    h = Harness("1x1", BestFit(), settings=rules, truth=truth, forecast=pupil, memory_bytes=16 * GIB)
    h.submit("a", model="m", memory_bytes=4 * GIB, compute_milli=0, runs_s=200.0)
    h.submit("b", at_s=50.0, model="n", memory_bytes=4 * GIB, compute_milli=0, runs_s=80.0)
    h.run()


def test_each_sample_beside_others_is_taught_and_none_alone() -> None:
    # As in test_samples: a is sampled at 30 (alone), 80 (beside b) and 180 (alone), b at 80.
    pupil = Pupil()
    _run(pupil)
    assert pupil.taught == [("m", ("n",), "gpu", 0.5), ("n", ("m",), "gpu", 0.8)]


def test_nothing_is_taught_if_the_setting_says_so() -> None:
    pupil = Pupil()
    _run(pupil, sample_learns=False)
    assert pupil.taught == []


def test_a_gang_with_different_company_on_its_devices_teaches_nothing() -> None:
    truth = FixedTruth({("m", ("n",)): 0.5, ("n", ("m",)): 0.8})
    pupil = Pupil()
    rules = Settings(sample_s=30.0, sample_noise=0.0)
    h = Harness("1x2", BestFit(), settings=rules, truth=truth, forecast=pupil, memory_bytes=16 * GIB)
    h.submit("gang", gpus=2, model="m", memory_bytes=4 * GIB, compute_milli=0, runs_s=200.0)
    h.submit("b", at_s=50.0, model="n", memory_bytes=4 * GIB, compute_milli=0, runs_s=80.0)
    run = h.run()
    # It is measured beside b on one of two devices; b itself has one device and one neighbour.
    assert [e.co_speed for e in run.of("gang", ev.Sampled) if e.co_speed] == [0.5]
    assert pupil.taught == [("n", ("m",), "gpu", 0.8)]


def test_policies_decide_the_same_whatever_they_kept_while_the_forecast_learns() -> None:
    taught = 0
    for policy in ("best-fit", "first-fit", "fgd", "colocate"):
        make = registry.load("policy", policy)
        for number in range(30):
            logs = []
            for drop in (False, True):
                harness = scenario(number, make, samples=True, drop_indexes=drop)
                given = harness.forecast
                assert isinstance(given, FixedForecast)
                pupil = harness.forecast = Pupil(dict(given.co), spread=given.spread)
                logs.append(harness.run(invariants=False).log)
            assert logs[0] == logs[1]
            taught += len(pupil.taught)
    assert taught > 50
