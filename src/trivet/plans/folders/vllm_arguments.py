"""Options of vLLM's command line on which nothing compiled depends, as of release 0.32.

Deny by default: what is not listed is in the key. Secrets have to be listed, since keys are stored.
"""

from __future__ import annotations

from trivet.plans.folders.arguments import MANY

_ADDRESS = {
    "--host": 1,
    "--port": 1,
    "--grpc-port": 1,
    "--uds": 1,
    "--root-path": 1,
    "--master-addr": 1,
    "--master-port": 1,
    "--data-parallel-address": 1,
    "--data-parallel-rpc-port": 1,
    "--data-parallel-supervisor-port": 1,
}
_WHO_MAY_ASK = {
    "--api-key": MANY,
    "--hf-token": 1,
    "--allow-credentials": 0,
    "--allowed-origins": 1,
    "--allowed-methods": 1,
    "--allowed-headers": 1,
    "--ssl-keyfile": 1,
    "--ssl-certfile": 1,
    "--ssl-ca-certs": 1,
    "--ssl-cert-reqs": 1,
    "--ssl-ciphers": 1,
    "--enable-ssl-refresh": 0,
}
_ANSWERS = {
    "--served-model-name": MANY,
    "--response-role": 1,
    "--enable-request-id-headers": 0,
    "--disable-fastapi-docs": 0,
    "--enable-offline-docs": 0,
    "--sse-keep-alive-interval": 1,
    "--api-server-count": 1,
    "-asc": 1,
}
_LOGS = {
    "--uvicorn-log-level": 1,
    "--disable-uvicorn-access-log": 0,
    "--disable-access-log-for-endpoints": 1,
    "--disable-log-stats": 0,
    "--enable-log-requests": 0,
    "--no-enable-log-requests": 0,
    "--enable-log-outputs": 0,
    "--max-log-len": 1,
    "--log-level": 1,
    "--log-config-file": 1,
    "--log-error-stack": 0,
    "--otlp-traces-endpoint": 1,
    "--show-hidden-metrics-for-version": 1,
}

NEUTRAL = {**_ADDRESS, **_WHO_MAY_ASK, **_ANSWERS, **_LOGS}
"""Option to how many words follow it; see `argument_fields`."""
