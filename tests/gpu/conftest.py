"""What tests on a device share."""

from collections.abc import Callable, Iterator

import pytest
import torch


@pytest.fixture
def no_synchronization() -> Iterator[Callable[[], None]]:
    """From the call on, waiting for the device is an error."""
    yield lambda: torch.cuda.set_sync_debug_mode("error")
    torch.cuda.set_sync_debug_mode("default")
