"""What the engines of a pool draw, under its cap and its clock lock, and on what authority.

Watts are those that were measured (the profile's [power]), else what is published of the GPU
(estimators/power_presets.toml), else unknown. What caps and clocks do is known only where it is published.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agentctl.errors import ConfigError, UsageError
from agentctl.estimators.gpus import TERA, Gpu, gpu_named
from agentctl.estimators.power import parse_power
from agentctl.estimators.power_model import GpuPower, PowerModel, measured, presets, published, with_clocks
from agentctl.estimators.prior import GEMM, WEIGHT_READING

if TYPE_CHECKING:
    from agentctl.cluster import Pool
    from agentctl.profile import Profile

HINT = "agentctl calibrate lps --power measures it and writes [power] into the profile"


def power_of(pool: Pool) -> PowerModel | str:
    """What one of its engines draws; or why nobody knows.

    Raises ConfigError for a [power] table that is none, and for a cap or a clock whose effect is unknown.
    """
    profile = pool.profile
    gpu = gpu_of(profile)
    known = presets().get(gpu.name) if gpu else None
    model: PowerModel | str
    if profile.power:
        model = measured(
            parse_power(profile.power, f"profile {profile.name}: [power]"), _weights_s(profile, gpu)
        )
        if known and not isinstance(model, str):
            model = with_clocks(model, known)
    elif known:
        model = published(known, _weights_s(profile, gpu), profile.tensor_parallel)
    else:
        of = f"a {profile.gpu}" if profile.gpu else "a GPU without a name"
        model = f"the profile has no power table, and nothing is published of what {of} draws"
    cap_w = None if gpu and pool.power_cap_w and pool.power_cap_w >= gpu.tdp_w else pool.power_cap_w
    lock = _lock(pool, known)
    if isinstance(model, str):
        _refuse(pool, cap_w, lock)
        return model
    if cap_w is not None:
        idle_w = model.idle_w / profile.tensor_parallel
        if cap_w <= idle_w:
            raise ConfigError(
                f"is {cap_w:g}", place=f"[pool] {pool.name} power_cap_w",
                expected=f"more than {idle_w:g} W, which the GPU draws with nothing to do",
            )  # fmt: skip
        model = replace(model, cap_w=cap_w * profile.tensor_parallel)
    model = replace(model, lock=lock)
    if model.clock_source is None and not model.is_free:
        _refuse(pool, cap_w, lock)
    return model


def gpu_of(profile: Profile) -> Gpu | None:
    """The data sheet of the profile's GPU, if there is one."""
    try:
        return gpu_named(profile.gpu) if profile.gpu else None
    except UsageError:
        return None


def _weights_s(profile: Profile, gpu: Gpu | None) -> float:
    """Seconds in which a batch reads the weights: at most b0, in which launches are, too.

    A token takes 2 FLOP a parameter and in 16 bits a parameter has 2 bytes: b_prefill tells how many there
    are, at the shares of the data sheet that physics priors use. With half the bits and twice the peak the
    ratio is the same.
    """
    c = profile.batch_time
    if gpu is None or c.b_prefill == 0:
        return c.b0
    bytes_read = c.b_prefill * gpu.bf16_tflops * TERA * GEMM
    return min(c.b0, bytes_read / (gpu.bandwidth * WEIGHT_READING))


def _lock(pool: Pool, known: GpuPower | None) -> float:
    """The clock as a share of the highest."""
    mhz = pool.sm_clock_mhz
    if mhz is None:
        return 1.0
    place = f"[pool] {pool.name} sm_clock_mhz"
    if known is None:
        raise _unknown_effect(pool, f"a lock at {mhz:g} MHz", place)
    if mhz < known.least_mhz:
        raise ConfigError(
            f"is {mhz:g}", place=place, expected=f"{known.least_mhz:g} to {known.top_mhz:g} MHz, as a "
            f"{pool.profile.gpu} has"
        )  # fmt: skip
    return min(mhz / known.top_mhz, 1.0)


def _refuse(pool: Pool, cap_w: float | None, lock: float) -> None:
    """Step times under a cap or a lock whose effect is unknown would be wrong."""
    if cap_w is not None:
        raise _unknown_effect(pool, f"a cap of {cap_w:g} W", f"[pool] {pool.name} power_cap_w")
    assert lock == 1.0, "a clock can only be locked where its effect is known"


def _unknown_effect(pool: Pool, what: str, place: str) -> ConfigError:
    return ConfigError(
        f"what {what} does to a {pool.profile.gpu or 'GPU without a name'} is not known",
        place=place,
        expected=f"a pool of {' or '.join(sorted(presets()))}, of which it is published",
        hint="leave it out; a cap at or above the board power changes nothing",
    )
