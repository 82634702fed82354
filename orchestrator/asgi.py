"""The ASGI application: pages and REST over HTTP, the live feed over WebSocket."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orchestrator.settings")
# Loads the apps: everything below may import models.
django.setup(set_prefix=False)

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402

from orchestrator.bodies import LimitBodies  # noqa: E402
from orchestrator.events.routing import websocket_urlpatterns  # noqa: E402
from orchestrator.processes.beating import begin  # noqa: E402
from orchestrator.processes.models import ProcessKind  # noqa: E402
from orchestrator.serving import Handler  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": LimitBodies(Handler()),
        "websocket": AuthMiddlewareStack(URLRouter(websocket_urlpatterns)),
    }
)
begin(ProcessKind.WEB)
