"""Which module is at work in a pass."""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from threading import get_ident
from typing import Any, cast

import torch
from torch import nn

_hooks: Any = torch.nn.modules.module  # torch leaves hooks of all modules untyped


class ModuleStack:
    """Names of the modules at work, the innermost last; one without a name has that of the one around it."""

    def __init__(self, model: nn.Module) -> None:
        """No module is at work yet."""
        named = cast("Iterable[tuple[str, nn.Module]]", model.named_modules())
        self.names = {id(module): name for name, module in named}
        self.stack: list[str] = []

    @property
    def top(self) -> str:
        """The innermost one; outside of all modules the model itself."""
        return self.stack[-1] if self.stack else ""

    @property
    def around(self) -> str:
        """The one that has called it."""
        return self.stack[-2] if len(self.stack) > 1 else ""

    @contextmanager
    def followed(
        self, *, entering: Callable[[], None], leaving: Callable[[Any, Any, Any], None]
    ) -> Generator[None]:
        """Keep track, in this thread.

        Args:
            entering: called before a module is.
            leaving: called with its arguments, keywords and output when it has been.
        """
        thread = get_ident()  # hooks of all modules are called in every thread

        def enter(module: nn.Module, _: object) -> None:
            if get_ident() == thread:
                entering()
                self.stack.append(self.names.get(id(module), self.top))

        # If a forward raises, torch leaves the keywords out, and gives no output.
        def leave(_: nn.Module, inputs: object, keywords: object, output: object = None) -> None:
            if get_ident() == thread:
                try:
                    leaving(inputs, keywords, output)
                finally:
                    self.stack.pop()

        before = _hooks.register_module_forward_pre_hook(enter)
        after = _hooks.register_module_forward_hook(leave, with_kwargs=True, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()
            # torch keeps the note that a hook takes keywords, and then takes it for a hook that is there.
            _hooks._global_forward_hooks_with_kwargs.pop(after.id, None)
