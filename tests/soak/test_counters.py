"""Counters may not fall, unless those who counted have changed."""

from tests.soak.counters import Counters, counters_in

TEXT = """# HELP a_total things
# TYPE a_total counter
a_total{kind="x"} 3
# TYPE now gauge
now 9
# TYPE took histogram
took_bucket{le="1"} 2
took_count 2
took_sum 1.5
"""


def test_counters_and_histograms_are_read_and_gauges_are_not():
    assert counters_in(TEXT) == {'a_total{kind="x"}': 3, 'took_bucket{le="1"}': 2, "took_count": 2, "took_sum": 1.5}


def test_a_fall_is_told_once_and_only_while_the_same_processes_count():
    counters, same, others = Counters(), frozenset({1, 2}), frozenset({1, 3})
    lower = TEXT.replace('a_total{kind="x"} 3', 'a_total{kind="x"} 2')
    assert counters.fallen(TEXT, same) == []
    assert counters.fallen(lower, same) == ['a_total{kind="x"} fell from 3 to 2']
    assert counters.fallen(TEXT, same) == []
    assert counters.fallen(lower, others) == []
