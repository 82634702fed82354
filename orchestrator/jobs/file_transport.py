"""Kombu's file-system transport, with messages that appear whole.

Kombu writes a message under its final name. A worker that looks at that very moment reads an empty
file, which it cannot decode; then it takes no further message, while its process lives on for as
long as one of its jobs runs. Here a message is written beside its place and renamed.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from pathlib import Path
from typing import Any

from kombu.exceptions import ChannelError
from kombu.transport import TRANSPORT_ALIASES, filesystem
from kombu.utils.encoding import str_to_bytes
from kombu.utils.json import dumps

PARTIAL = ".partial"
"""No queue's files end like this: whoever reads passes them over."""


class Channel(filesystem.Channel):
    # Kombu's own classes disagree about the second name.
    def _put(self, queue: str, payload: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """Named as kombu names them: by age, so that the oldest is read first."""
        name = f"{round(time.monotonic() * 1000)}_{uuid.uuid4()}.{queue}.msg"
        path = Path(self.data_folder_out, name)
        partial = path.with_name(f"{name}{PARTIAL}")
        try:
            partial.write_bytes(str_to_bytes(dumps(payload)))
            os.replace(partial, path)
        except OSError as exc:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise ChannelError(f"the message {path} cannot be written: {exc}") from exc


class Transport(filesystem.Transport):
    Channel = Channel


def use_for_filesystem() -> None:
    """Every `filesystem://` of this process from now on."""
    TRANSPORT_ALIASES["filesystem"] = f"{__name__}:{Transport.__name__}"
