"""What a trace changes of the whole process, and brings back: messages of torch, and random seeds.

``torch.export`` keeps the model it is at in a global variable, and a recording watches all modules, so that
one thread traces at a time. What torch logs meanwhile is about models that it cannot export, which are
recorded then. Nothing is replaced: a filter is added to those of warnings and of logging, and lets the
messages of other threads pass.
"""

import logging
import random
import sys
import threading
import warnings
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import torch

TRACING = threading.RLock()
"""Held while a model is traced or recorded, and while random seeds are set."""


class _Silence(logging.Filter):
    """While it is active, swallows what the thread that made it warns of, and has torch log."""

    def __init__(self) -> None:
        super().__init__()
        self.thread, self.active = threading.get_ident(), True

    def is_ours(self) -> bool:
        return self.active and threading.get_ident() == self.thread

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a logged message passes: all but torch's."""
        return not (self.is_ours() and record.name.partition(".")[0] == "torch")

    def match(self, _text: str) -> bool:
        """Whether a warning is swallowed, as a regular expression in a filter of warnings says it."""
        return self.is_ours()


@contextmanager
def quietly() -> Generator[None]:
    """Be the only thread that traces, without what torch says."""
    with TRACING:
        silence: Any = _Silence()
        entry = ("ignore", silence, Warning, None, 0)
        filters = cast("list[Any]", warnings.filters)
        handlers = _handlers()
        try:
            filters.insert(0, entry)
            for handler in handlers:
                handler.addFilter(silence)
            yield
        finally:
            silence.active = False  # should somebody else have kept it, everything passes
            for handler in handlers:
                handler.removeFilter(silence)
            for kept in (filters, cast("list[Any]", warnings.filters)):
                if entry in kept:
                    kept.remove(entry)


def _handlers() -> list[logging.Handler]:
    """All that handle what is logged now."""
    loggers = [logging.root, *list(logging.root.manager.loggerDict.values())]
    found = [handler for one in loggers if isinstance(one, logging.Logger) for handler in one.handlers]
    return [*found, logging.lastResort] if logging.lastResort else found


def set_seeds(seed: int) -> None:
    """Seed the random generators of Python, numpy and torch; of torch's, those that are in use."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # else the seed would wait for it, and stay
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        cast("Any", numpy).random.seed(seed)


def _forked() -> AbstractContextManager[None]:
    """Bring back torch's generators; nothing is started on devices that are not in use."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    return cast("Any", torch).random.fork_rng(devices)


@contextmanager
def seeds_restored() -> Generator[None]:
    """Bring back the random generators of Python, numpy and torch; one thread at a time.

    All threads share these generators. A second thread would bring back what the first has set, and draw from
    its numbers.
    """
    with TRACING:
        numpy: Any = sys.modules.get("numpy")
        python, numbers = random.getstate(), numpy.random.get_state() if numpy is not None else None
        try:
            with _forked():
                yield
        finally:
            random.setstate(python)
            if numpy is not None:
                numpy.random.set_state(numbers)
