"""An OpenID Connect provider on the loopback: discovery, code with PKCE, signed tokens, userinfo.

Whoever is sent to it is `claims` at once: there is no page to sign in at.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT_ID, CLIENT_SECRET = "switchback", "canary-client-secret"


class OidcProvider:
    """`with OidcProvider() as provider:` answers at `provider.url` until the block ends."""

    def __init__(self) -> None:
        self.claims: dict[str, Any] = {}
        self.faults: set[str] = set()
        """`audience`: tokens are for somebody else."""
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._challenges: dict[str, tuple[str, str]] = {}
        """Code to PKCE challenge and nonce."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.get(self)

            def do_POST(self) -> None:
                provider.post(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def get(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/.well-known/openid-configuration":
            _answer(request, self._configuration())
        elif parts.path == "/keys":
            key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
            _answer(request, {"keys": [{**key, "kid": "one", "alg": "RS256", "use": "sig"}]})
        elif parts.path == "/userinfo":
            _answer(request, self.claims)
        elif parts.path == "/authorize":
            code = secrets.token_hex(8)
            self._challenges[code] = (asked["code_challenge"], asked.get("nonce", ""))
            back = urlencode({"code": code, "state": asked["state"]})
            request.send_response(302)
            request.send_header("Location", f"{asked['redirect_uri']}?{back}")
            request.end_headers()
        else:
            _answer(request, {"error": "not found"}, 404)

    def post(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"])).decode()
        asked = {name: values[0] for name, values in parse_qs(body).items()}
        challenge, nonce = self._challenges.pop(asked.get("code", ""), ("", ""))
        digest = hashlib.sha256(asked.get("code_verifier", "").encode()).digest()
        is_right = base64.urlsafe_b64encode(digest).decode().rstrip("=") == challenge
        if asked.get("client_secret") != CLIENT_SECRET or not is_right:
            _answer(request, {"error": "invalid_grant"}, 400)
            return
        now = int(time.time())
        told = {
            **self.claims,
            "iss": self.url,
            "aud": "somebody-else" if "audience" in self.faults else CLIENT_ID,
            "iat": now,
            "exp": now + 300,
            **({"nonce": nonce} if nonce else {}),
        }
        token = jwt.encode(told, self._key, algorithm="RS256", headers={"kid": "one"})
        _answer(
            request,
            {"access_token": "a", "token_type": "Bearer", "expires_in": 300, "id_token": token},
        )

    def _configuration(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "userinfo_endpoint": f"{self.url}/userinfo",
            "jwks_uri": f"{self.url}/keys",
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }


def _answer(request: BaseHTTPRequestHandler, body: dict[str, Any], status: int = 200) -> None:
    text = json.dumps(body).encode()
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(text)))
    request.end_headers()
    request.wfile.write(text)
