"""What simulations found, as the curves that are drawn of it."""

from pathlib import Path

from quire.observe.plots import SimulationCurves, draw_simulations
from quire.simulation.report import Report


def draw_reports(reports: list[Report], path: Path) -> None:
    """Draw the reports of one experiment to a PNG file."""
    setting = reports[0].setting
    cluster = f"{setting.replicas:,} × {setting.device}" if setting.replicas > 1 else setting.device
    draw_simulations(f"{setting.model} on {cluster}: {setting.workload}", [_curves(each) for each in reports], path)


def _curves(report: Report) -> SimulationCurves:
    points = report.timeline
    return SimulationCurves(
        name=report.setting.policy,
        times=[point.time for point in points],
        output_rate=[point.output_tokens_per_second for point in points],
        input_rate=[point.input_tokens_per_second for point in points],
        running=[point.running for point in points],
        waiting=[point.waiting for point in points],
        kv_used=[point.kv_used for point in points],
        ttft=(report.ttft_curve.values, report.ttft_curve.shares),
        itl=(report.itl_curve.values, report.itl_curve.shares),
        waste={f"blocks of {report.setting.block_size}": report.kv.waste}
        | {f"one piece,\n{way}": waste for way, waste in report.kv.contiguous_waste.items()},
    )
