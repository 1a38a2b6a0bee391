"""`quire bench`: the group of its commands; each is imported when it runs."""

from cyclopts import App, Group

_COMMANDS = {
    "serve": ("quire.cli.bench.serve:serve", "Load a server over HTTP: any that speaks OpenAI's protocol."),
    "throughput": ("quire.cli.bench.throughput:throughput", "Many requests at once, in this process."),
    "latency": ("quire.cli.bench.latency:latency", "One batch alone, again and again, in this process."),
    "startup": ("quire.cli.bench.startup:startup", "From the start of a process to its first token."),
    "kernels": ("quire.cli.bench.kernels:kernels", "The operations alone, beside what the machine can do."),
    "compare": ("quire.cli.bench.compare:compare", "What got faster or slower between two --json files."),
}

bench = App(
    name="bench",
    help="Measure a server, a model, a start or the kernels.",
    help_format="plaintext",
    group_parameters=Group("Options", sort_key=0),
)
for _name, (_target, _line) in _COMMANDS.items():
    bench.command(_target, name=_name, help=_line)
