"""Tracing without what torch logs and warns of, in one thread at a time.

``torch.export`` keeps the model it is at in a global variable, and a recording watches all modules. What
torch says meanwhile is about models that it cannot export, which are recorded then. Nothing is replaced: a
filter is added to those of warnings and of what is logged, and lets all that other threads say pass.
"""

import logging
import threading
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

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
