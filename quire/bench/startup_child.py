"""One start of an engine, measured from inside: `python -m quire.bench.startup_child SETTINGS`, a process of its own.

Prints one JSON object: moments of the clock that all processes share, and the parts of loading. Nothing is imported
before its moment is taken.
"""

import json
import sys
import time


def main() -> None:
    moments = {"interpreter": time.monotonic()}
    from quire.config.engine import EngineConfig
    from quire.core.sampling_params import SamplingParams
    from quire.engine.engine import start_engine

    moments["importing quire"] = time.monotonic()
    asked = json.loads(sys.argv[1])
    engine, _ = start_engine(EngineConfig.from_flat(**asked["settings"]))
    moments["loading the model"] = time.monotonic()
    engine.add(asked["prompt"], SamplingParams(temperature=0, max_tokens=1, ignore_eos=True))
    while engine.has_work:
        engine.step()
    moments["first token"] = time.monotonic()
    print(json.dumps({"moments": moments, "parts": engine.clock.parts}), flush=True)
    engine.close()


if __name__ == "__main__":
    main()
