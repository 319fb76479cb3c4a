"""Run torch's own test_optim.py on our optimizers, where that file is at hand; it is not in torch's wheels.

    python tests/support/torch_harness.py PYTORCH/test/test_optim.py [ScaledSGD] [test_fused] [--control]

runs the tests of ``TestOptimRenewed`` that have all of the given words in their names. Take the file of the
torch that is installed. Every failure is printed, with its reason where it is one of :data:`BY_DESIGN`; the
exit status is that of the others. At the end are the counts of every optimizer. ``--control`` runs torch's
own optimizers of the same names instead: what they fail at, too, is of the version of the file.

Its tests put weights and biases into one list, which our optimizers refuse by design. They are run as
``Routed...``, which take groups with parameters of one axis as plain.
"""

# ruff: noqa: T201 - it prints

import argparse
import importlib.util
import re
import sys
import types
import unittest
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer
from torch.testing._internal import common_optimizers
from torch.testing._internal.common_optimizers import OptimizerInfo

NORMALIZED = "UnitNormSGD has normalized the rows when it was made"
NO_DECAY = "UnitNormSGD refuses weight decay on rows, which the normalization would undo"
OTHER_WORDS = "refused at the same time, as an OptionError, in other words than torch's"
TOO_FAST = "rates for plain SGD, times squared norms of rows of 5 and more"
BY_DEFAULT = "AdamW decays by default, which the file knows of the name AdamW alone"
TORCH = "torch allows its own Adagrad more rounding in this test (toleranceOverride)"

BY_DESIGN: list[tuple[str, str, str]] = [
    (r"_RoutedUnitNormSGD_", r"has no effect on unit-norm rows", NO_DECAY),
    (r"test_step_is_noop_for_zero_grads_RoutedUnitNormSGD_", r"not (close|equal)", NORMALIZED),
    (r"test_step_is_noop_for_zero_grads_RoutedInvariantAdamW_", r"not (close|equal)", BY_DEFAULT),
    (r"test_complex", r"only real floating point can be updated", "complex parameters are refused"),
    (r"test_fused_error_on_params_on_meta", r"CPUs and CUDA devices only, not for meta", OTHER_WORDS),
    (r"test_param_groups_weight_decay_Routed(InvariantSGD|ScaledSGD)_", r"nan not (less|greater)", TOO_FAST),
    (r"test_fused_matches_forloop_RoutedInvariantAdagrad_cpu_b?float16", r"not close", TORCH),
]
"""Which tests fail with which words, and why."""


def routed(kind: type[Optimizer]) -> type[Optimizer]:
    """The optimizer, with groups that have parameters of one axis taken as plain."""

    def add_param_group(self: Any, group: dict[str, Any]) -> None:
        given = group["params"]
        given = [given] if isinstance(given, torch.Tensor) else list(given)
        tensors = [one[1] if isinstance(one, tuple) else one for one in given]
        has_biases = any(isinstance(one, torch.Tensor) and one.ndim < 2 for one in tensors)
        geometry = {"geometry": "plain"} if has_biases else {}
        super(kind_routed, self).add_param_group({**geometry, **group, "params": given})

    kind_routed = type(f"Routed{kind.__name__}", (kind,), {"add_param_group": add_param_group})
    return kind_routed


def ours() -> list[OptimizerInfo]:
    """Entries for torch's table of optimizers: those of our own battery, routed."""
    spec = importlib.util.spec_from_file_location("symoptim_infos", Path(__file__).with_name("infos.py"))
    assert spec is not None
    assert spec.loader is not None
    infos = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(infos)
    for info in (*infos.OURS, *infos.CHARTED):
        info.optim_cls = routed(info.optim_cls)
        info.optim_inputs_func = _of_any_version(info.optim_inputs_func)
        info.optim_error_inputs_func = _of_lists(info.optim_error_inputs_func)
    return [*infos.OURS, *infos.CHARTED]


def _of_any_version(inputs: Any) -> Any:
    """A function of the inputs that every version of torch's file can call."""
    return lambda device, dtype=None: inputs(device, dtype)


def _of_lists(errors: Any) -> Any:
    """Errors that are ones of routed optimizers too."""
    return lambda device, dtype: [
        error
        for error in errors(device, dtype)
        if error.optimizer_error_input.params is not None and "has shape" not in error.error_regex
    ]


def torchs_own() -> list[OptimizerInfo]:
    """Torch's entries for the optimizers that ours are like, or are made of."""
    names = ("SGD", "AdamW", "NAdam", "RMSprop", "Adagrad")
    return [info for info in common_optimizers.optim_db if info.optim_cls.__name__ in names]


def tests_in(file: Path, infos: list[OptimizerInfo]) -> unittest.TestSuite:
    """The tests of torch's file, made for these optimizers."""
    common_optimizers.optim_db[:] = infos
    sys.path.insert(0, str(file.parent))
    if not (file.parent / "optim").is_dir():  # the file alone: what else it imports is not asked for
        for name in ("optim", "optim.test_lrscheduler", "optim.test_optim", "optim.test_swa_utils"):
            module: Any = types.ModuleType(name)
            module.TestLRScheduler = module.TestDifferentiableOptimizer = unittest.TestCase
            module.TestSWAUtils = unittest.TestCase
            module.__path__ = []
            sys.modules[name] = module
    spec = importlib.util.spec_from_file_location("test_optim_of_torch", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    kinds = [kind for name, kind in vars(module).items() if name.startswith("TestOptimRenewed")]
    loader = unittest.TestLoader()
    return unittest.TestSuite(loader.loadTestsFromTestCase(kind) for kind in kinds)


def each(suite: unittest.TestSuite) -> Any:
    """Single tests."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from each(test)
        else:
            yield test


def reason_for(name: str, error: str) -> str | None:
    """Why a failure is by design, if it is."""
    found = (why for test, says, why in BY_DESIGN if re.search(test, name) and re.search(says, error))
    return next(found, None)


def optimizer_of(test: unittest.TestCase, infos: list[OptimizerInfo]) -> str:
    """Name of the optimizer that a test is about."""
    names = (info.optim_cls.__name__ for info in infos)
    return next((name for name in names if f"_{name}_" in test.id()), "none")


def main() -> int:
    """Run; the exit status says whether anything failed that is not by design."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=Path, help="torch's test/test_optim.py")
    parser.add_argument("words", nargs="*", help="run the tests that have all of these in their names")
    parser.add_argument("--control", action="store_true", help="run torch's own optimizers")
    options = parser.parse_args()
    del sys.argv[1:]  # torch's machinery reads them too
    infos = torchs_own() if options.control else ours()
    tests = each(tests_in(options.file, infos))
    chosen = [test for test in tests if all(word in test.id() for word in options.words)]
    counts = Counter((optimizer_of(test, infos), "all") for test in chosen)
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=0).run(unittest.TestSuite(chosen))
    counts.update((optimizer_of(test, infos), "skipped") for test, _ in result.skipped)
    for test, error in [*result.failures, *result.errors]:
        name = test.id().rpartition(".")[2]
        said = [line for line in error.splitlines() if re.match(r"[\w.]*(Error|Warning|Exception)\b", line)]
        reason = reason_for(name, error)
        counts[optimizer_of(test, infos), "by design" if reason else "failed"] += 1
        print(f"{name}: {reason or 'NOT BY DESIGN: ' + ' '.join(said)}")
    for kind in dict.fromkeys(kind for kind, _ in counts):
        skipped, by_design, failed = (counts[kind, how] for how in ("skipped", "by design", "failed"))
        run = counts[kind, "all"] - skipped
        passed = run - by_design - failed
        print(
            f"{kind}: {run} run, {passed} passed, {by_design} by design, {failed} failed, {skipped} skipped"
        )
    return int(any(how == "failed" for _, how in counts))


if __name__ == "__main__":
    sys.exit(main())
