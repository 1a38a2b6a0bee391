"""Seeds of unseeded requests are the same in every process."""

from quire.sampling.seeds import seed_for


def test_seeds_never_change() -> None:
    """Written down: a text that was begun by one engine goes on in another, perhaps of a later version."""
    assert seed_for("request-1", 0) == 1577229754087069336
    assert seed_for("request-1", 1) == -1376174932710877031


def test_seeds_differ_and_fit_64_bits() -> None:
    seeds = {seed_for(f"request-{number}", engine) for number in range(200) for engine in range(5)}
    assert len(seeds) == 1000
    assert all(-(1 << 63) <= seed < 1 << 63 for seed in seeds)
    assert sum(seed < 0 for seed in seeds) > 400
