"""A hook for tests: with this folder in PYTHONPATH, steps of an engine throw while a marked request is in them.

Python imports a module of this name by itself when it starts. The mark is a seed, which travels to the worker.
"""

import importlib.abc
import importlib.util
import sys

MARK = 666_666
_ENGINE = "quire.engine.serving.child"
_WORKER = "quire.worker.worker"


class _PatchWorker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != _WORKER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_and_patch(module):
            load(module)
            _patch(module.Worker)

        spec.loader.exec_module = load_and_patch
        return spec


def _patch(worker) -> None:
    start = worker.start
    marked: set[int] = set()

    def throwing(self, plan):
        marked.difference_update(plan.released)
        for admission in plan.admitted:
            marked.discard(admission.row)
            if admission.params.seed == MARK:
                marked.add(admission.row)
        if marked.intersection(plan.rows):
            raise ValueError("this step was made to throw")
        return start(self, plan)

    worker.start = throwing


if _ENGINE in sys.orig_argv:
    sys.meta_path.insert(0, _PatchWorker())
