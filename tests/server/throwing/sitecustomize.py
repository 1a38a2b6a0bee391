"""A hook for tests: with this folder in PYTHONPATH, steps of an engine throw while a marked request is in them.

Python imports a module of this name by itself when it starts. The mark is a seed, which travels to the worker.
"""

import importlib.abc
import importlib.util
import sys

MARK = 666_666
TOO_LARGE = 777_777
"""Of a request that a device never has enough memory for."""
_ENGINE = "quire.serving.child"
_WORKERS = {"quire.worker.worker": "Worker", "quire.worker.core_worker": "CoreWorker"}


class _PatchWorker(importlib.abc.MetaPathFinder):
    def __init__(self):
        self._found = set()

    def find_spec(self, name, path, target=None):
        if name not in _WORKERS or name in self._found:
            return None
        self._found.add(name)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_and_patch(module):
            load(module)
            _patch(getattr(module, _WORKERS[name]))

        spec.loader.exec_module = load_and_patch
        return spec


def _patch(worker) -> None:
    start = worker.start
    marked: dict[int, int] = {}

    def throwing(self, plan):
        for row in plan.released:
            marked.pop(row, None)
        for admission in plan.admitted:
            marked[admission.row] = admission.params.seed
        found = start(self, plan)  # what it has written to the cache by then must do no harm
        seeds = {marked.get(row) for row in plan.rows}
        if MARK in seeds:
            raise ValueError("this step was made to throw")
        if TOO_LARGE in seeds:
            import torch

            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return found

    worker.start = throwing


if _ENGINE in sys.orig_argv:
    sys.meta_path.insert(0, _PatchWorker())
