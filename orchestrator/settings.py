"""One settings module, one switch.

`STACK=embedded` (default) needs no service: SQLite and a broker of files in the data folder.
`STACK=scale` takes PostgreSQL from `DATABASE_URL` and Redis or Valkey from `BROKER_URL`.
Application code never asks which one runs. What is missing is named by `orchestrator.checks`.
"""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import django_stubs_ext
from csp.constants import NONCE, NONE, SELF

from orchestrator import logs
from orchestrator.envvars import (
    env_bool,
    env_choice,
    env_int,
    env_list,
    env_seconds,
    env_secret,
    kept_secret,
    postgres_options,
)

# Makes `ModelAdmin[Project]` and the like valid at run time, as the type checker wants them.
django_stubs_ext.monkeypatch()

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = Path(os.environ.get("SWITCHBACK_DATA") or BASE_DIR / "var").resolve()
DATA_DIR.mkdir(parents=True, exist_ok=True)
# Below these, editors of projects may register folders of this machine as environments.
PACKAGE_FOLDERS = env_list("SWITCHBACK_PACKAGE_FOLDERS", default=[])

# Of one request, and of one that brings a whole project.
MAX_BODY_BYTES = env_int("SWITCHBACK_MAX_BODY_MB", default=160) << 20
MAX_ARCHIVE_BYTES = env_int("SWITCHBACK_MAX_ARCHIVE_MB", default=4096) << 20
# Large bytes: empty for the data folder, the path of a folder, or `s3://bucket/prefix`.
BLOBS = os.environ.get("SWITCHBACK_BLOBS", "")
BLOB_CACHE_BYTES = env_int("SWITCHBACK_BLOB_CACHE_MB", default=4096) << 20

STACK = os.environ.get("STACK", "embedded")
DATABASE_URL = env_secret("DATABASE_URL")
BROKER_URL = env_secret("BROKER_URL")

# --- web ------------------------------------------------------------------------------------
DEBUG = env_bool("SWITCHBACK_DEBUG", default=False)
SECRET_KEY = env_secret("SECRET_KEY") or kept_secret(DATA_DIR / "secret_key")
# Keys before it: they still open sessions and secrets, and sign nothing new.
SECRET_KEY_FALLBACKS = [key for key in (env_secret("SECRET_KEY_PREVIOUS") or "").split(",") if key]
PORT = env_int("SWITCHBACK_PORT", default=8000)
# Under which address people reach the pages, for links in messages that no request asked for.
PUBLIC_URL = os.environ.get("SWITCHBACK_URL", "")
# Hosts inside the network, as `name` or `name:port`, that webhooks may reach.
WEBHOOK_HOSTS = env_list("SWITCHBACK_WEBHOOK_HOSTS", default=[])
ALLOWED_HOSTS = env_list("SWITCHBACK_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env_list("SWITCHBACK_TRUSTED_ORIGINS", default=[])
ROOT_URLCONF = "orchestrator.urls"
ASGI_APPLICATION = "orchestrator.asgi.application"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "axes",
    "csp",
    "django_filters",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "orchestrator.apps.OrchestratorConfig",
    "orchestrator.processes",
    "orchestrator.projects",
    "orchestrator.blobs",
    "orchestrator.jobs",
    "orchestrator.events",
    "rubrics",
    "optimizer",
    "training",
    "orchestrator.environments",
    "orchestrator.agents",
    "orchestrator.runs",
    "orchestrator.proposing",
    "orchestrator.trainings",
    "orchestrator.searches",
    "orchestrator.climbs",
    "orchestrator.gates",
    "orchestrator.tryouts",
    "orchestrator.judging",
    "orchestrator.grading",
    "orchestrator.traces",
    "orchestrator.review",
    "orchestrator.webhooks",
    "orchestrator.keeping",
    "orchestrator.api",
    "orchestrator.web",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "orchestrator.serving.static_files",
    "orchestrator.middleware.log_request",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "orchestrator.projects.audit.middleware.audit_changes",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    # Last: it turns the refusal of its backend into a page.
    "axes.middleware.AxesMiddleware",
]

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "csp.context_processors.nonce",
            ],
        },
    },
]

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
# Files are served straight from the source folders: no collect step can be forgotten or stale.
SERVESTATIC_USE_FINDERS = True
SERVESTATIC_AUTOREFRESH = DEBUG

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
        "script-src": [SELF],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:"],
        "connect-src": [SELF],
        "font-src": [SELF],
        "form-action": [SELF],
    }
}
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = env_bool("SWITCHBACK_HTTPS", default=False)
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if SESSION_COOKIE_SECURE else None
SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE
# Asked by load balancers from inside, without TLS.
SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)$"]
SECURE_HSTS_SECONDS = (
    env_int("SWITCHBACK_HSTS_S", default=31_536_000) if SESSION_COOKIE_SECURE else 0
)
# Other hosts below the same domain are not ours to promise TLS for.
# SQLite makes an index without the columns that PostgreSQL keeps beside its keys: right, if slower.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021", "models.W040"]

AUTH_USER_MODEL = "projects.User"
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
# Guessing passwords: after so many failures a name waits, at the address that they came from.
AXES_FAILURE_LIMIT = env_int("SWITCHBACK_LOGIN_FAILURES", default=10)
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_DISABLE_ACCESS_LOG = True
AXES_LOCKOUT_TEMPLATE = "registration/locked.html"
AXES_VERBOSE = False
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"
# Signing in through an OpenID Connect provider: `requirements/sso.txt` and these.
OIDC_ISSUER = os.environ.get("SWITCHBACK_OIDC_ISSUER", "")
OIDC_NAME = os.environ.get("SWITCHBACK_OIDC_NAME", "single sign-on")
SSO_DOMAINS = env_list("SWITCHBACK_OIDC_DOMAINS", default=[])
if OIDC_ISSUER:
    INSTALLED_APPS += [
        "allauth",
        "allauth.account",
        "allauth.socialaccount",
        "allauth.socialaccount.providers.openid_connect",
    ]
    MIDDLEWARE += ["allauth.account.middleware.AccountMiddleware"]
    AUTHENTICATION_BACKENDS += ["allauth.account.auth_backends.AuthenticationBackend"]
    ACCOUNT_EMAIL_VERIFICATION = "none"
    # Somebody is who the provider's subject says; addresses are told and may be shared.
    ACCOUNT_UNIQUE_EMAIL = False
    SOCIALACCOUNT_ONLY = True
    SOCIALACCOUNT_ADAPTER = "orchestrator.projects.sso.Adapter"
    SOCIALACCOUNT_STORE_TOKENS = False
    SOCIALACCOUNT_PROVIDERS = {
        "openid_connect": {
            "OAUTH_PKCE_ENABLED": True,
            "APPS": [
                {
                    "provider_id": "oidc",
                    "name": OIDC_NAME,
                    "client_id": os.environ.get("SWITCHBACK_OIDC_CLIENT_ID", ""),
                    "secret": env_secret("SWITCHBACK_OIDC_CLIENT_SECRET") or "",
                    "settings": {"server_url": OIDC_ISSUER},
                }
            ],
        }
    }

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 10},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "orchestrator.projects.authentication.ApiTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "orchestrator.api.permissions.WithinScopes",
    ],
    "DEFAULT_THROTTLE_CLASSES": ["orchestrator.api.limits.PerCaller"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "orchestrator.api.permissions.JsonOrElse",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["orchestrator.api.parsing.StorableJson"],
    "DEFAULT_SCHEMA_CLASS": "orchestrator.api.schema.Schema",
    "EXCEPTION_HANDLER": "orchestrator.api.problems.problem",
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Switchback",
    "DESCRIPTION": "Everything that the pages do, for programs.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "PATH_CONVERTER_OVERRIDES": {
        "id": {"type": "integer", "minimum": 1, "maximum": 10**15 - 1},
        "key": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$"},
        "criterion": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$"},
    },
    "ENUM_NAME_OVERRIDES": {
        "SplitEnum": "orchestrator.environments.models.Split",
        "OpenSplitEnum": [("train", "train"), ("select", "select")],
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "orchestrator.api.shapes.add_shapes",
    ],
    "AUTHENTICATION_WHITELIST": ["orchestrator.projects.authentication.ApiTokenAuthentication"],
}
# Of one token or signed-in user, on average; bursts may take a minute's worth at once. 0: no limit.
API_REQUESTS_PER_MINUTE = env_int("SWITCHBACK_API_REQUESTS_PER_MINUTE", default=3000)

# Ingest that a web process stores at a time, and events that may wait for the full-text index;
# above that the answer is 429 with Retry-After. 0 events: no limit.
INGEST_REQUESTS = env_int("SWITCHBACK_INGEST_REQUESTS", default=12)
INGEST_BYTES = env_int("SWITCHBACK_INGEST_BYTES", default=256 * 2**20)
INGEST_BACKLOG = env_int("SWITCHBACK_INGEST_BACKLOG", default=500_000)

# Web processes of `manage.py up`: they share its port. With two, one answers while the other starts
# again, also where there is one core; beyond half of the cores, the rest is for what they start.
WEB_PROCESSES = env_int(
    "SWITCHBACK_WEB_PROCESSES", default=min(4, max(2, (os.cpu_count() or 1) // 2))
)
# Requests that a web process works on at a time; the others wait.
WEB_THREADS = env_int("SWITCHBACK_WEB_THREADS", default=16)

# --- database -------------------------------------------------------------------------------
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SQLITE_OPTIONS: dict[str, Any] = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": (
        "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;PRAGMA temp_store=MEMORY;"
        "PRAGMA mmap_size=134217728;PRAGMA journal_size_limit=67108864;PRAGMA cache_size=-20000;"
        # 64 MB: see orchestrator.sqlite.checkpoints.
        "PRAGMA wal_autocheckpoint=16384;"
    ),
}
DATABASES: dict[str, dict[str, Any]] = {
    "default": {
        "ENGINE": "orchestrator.sqlite",
        "NAME": DATA_DIR / "db.sqlite3",
        "CONN_MAX_AGE": 0,
        "OPTIONS": SQLITE_OPTIONS,
        # A file, since an in-memory database has no WAL and no other process can open it.
        "TEST": {"NAME": DATA_DIR / "test.sqlite3"},
    }
}
if STACK == "scale" and DATABASE_URL:
    DATABASES["default"] = postgres_options(
        DATABASE_URL, pool_size=env_int("SWITCHBACK_POOL_SIZE", default=12)
    )

TIME_ZONE = "UTC"
USE_TZ = True
LANGUAGE_CODE = "en-us"
USE_I18N = False

# --- jobs and announcements -----------------------------------------------------------------
JOB_LEASE_S = env_seconds("SWITCHBACK_JOB_LEASE_S", default=15)
JOB_BEAT_S = env_seconds("SWITCHBACK_JOB_BEAT_S", default=3)
JOB_SWEEP_S = env_seconds("SWITCHBACK_JOB_SWEEP_S", default=1)
JOB_GRACE_S = env_seconds("SWITCHBACK_JOB_GRACE_S", default=5)
# How long a worker that was told to stop lets running episodes come to their end.
DRAIN_S = env_int("SWITCHBACK_DRAIN_S", default=30 if STACK == "scale" else 5)
# Jobs that one worker process runs at a time; each is a thread that waits most of the time.
WORKER_SLOTS = env_int("SWITCHBACK_WORKER_SLOTS", default=4)
# One training job each: `cpu`, `cuda:0`, or with its memory in MB `cuda:0=80000`.
# Of several hosts `gpu1/cuda:0`: the same list on all of them.
TRAINING_DEVICES = env_list("SWITCHBACK_TRAINING_DEVICES", default=["cpu"])
HOST = os.environ.get("SWITCHBACK_HOST") or socket.gethostname()
_DEVICE_HOSTS = [entry.rpartition("/")[0] for entry in TRAINING_DEVICES]
GPU_SLOTS = env_int(
    "SWITCHBACK_GPU_SLOTS", default=max(1, sum(host in ("", HOST) for host in _DEVICE_HOSTS))
)
# After how long an environment server that nobody uses is stopped.
SERVER_IDLE_S = env_seconds("SWITCHBACK_SERVER_IDLE_S", default=300)
# A training on the device of a named host is for that host's workers alone.
JOB_QUEUES = ["default", "rollouts", "gpu"]
JOB_QUEUES += sorted({f"gpu-{host}" for host in _DEVICE_HOSTS if host})
GPU_QUEUES = f"gpu,gpu-{HOST}" if HOST in _DEVICE_HOSTS else "gpu"

CELERY_BROKER_URL = "filesystem://"
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = {
    "data_folder_in": str(DATA_DIR / "broker" / "messages"),
    "data_folder_out": str(DATA_DIR / "broker" / "messages"),
    "control_folder": str(DATA_DIR / "broker" / "control"),
    "store_processed": False,
    "polling_interval": 0.02,
}
if STACK == "scale" and BROKER_URL:
    CELERY_BROKER_URL = BROKER_URL
    # The lease redelivers; a broker that does so too would start second copies of long jobs.
    CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 86_400, "polling_interval": 0.2}
    if BROKER_URL.startswith(("amqp:", "amqps:")):  # RabbitMQ knows neither
        CELERY_BROKER_TRANSPORT_OPTIONS = {}
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = False
CELERY_TASK_DEFAULT_QUEUE = "default"
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TIMEZONE = TIME_ZONE
# A web request that announces a job must not hang on a dead broker: the sweep announces later.
CELERY_TASK_PUBLISH_RETRY = False

CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
# How many sockets one user may hold open in one web process.
FEED_SOCKETS_PER_USER = env_int("SWITCHBACK_FEED_SOCKETS_PER_USER", default=32)

# --- watching over it -------------------------------------------------------------------------
# Seconds between two signs of life of a process, with its figures for /metrics.
PROCESS_BEAT_S = env_seconds("SWITCHBACK_PROCESS_BEAT_S", default=10)
# Lets a monitor read /metrics and the details of /readyz; without one only this machine may.
METRICS_TOKEN = env_secret("SWITCHBACK_METRICS_TOKEN") or ""

# --- model server ---------------------------------------------------------------------------
MODEL_NAME = os.environ.get("SWITCHBACK_MODEL_NAME", "smollm2-135m")
_MODEL_DIR = os.environ.get("SWITCHBACK_MODEL_DIR")
MODEL_DIR = Path(_MODEL_DIR).resolve() if _MODEL_DIR else DATA_DIR / "models" / MODEL_NAME
MODEL_PORT = env_int("SWITCHBACK_MODEL_PORT", default=8012)
# A vLLM server that samples in the model server's place. Its key is read by the processes that
# call it, as SWITCHBACK_VLLM_API_KEY.
VLLM_URL = os.environ.get("SWITCHBACK_VLLM_URL", "")
VLLM_MODEL = os.environ.get("SWITCHBACK_VLLM_MODEL", "") or MODEL_NAME
VLLM_PROCESSED = env_bool("SWITCHBACK_VLLM_PROCESSED", default=False)

# --- logs -----------------------------------------------------------------------------------
LOG_LEVEL = os.environ.get("SWITCHBACK_LOG_LEVEL", "INFO").upper()
LOG_FORMAT = env_choice("SWITCHBACK_LOG_FORMAT", logs.FORMATS)
logs.configure()
LOGGING: dict[str, Any] = logs.logging_settings(level=LOG_LEVEL, form=LOG_FORMAT)
