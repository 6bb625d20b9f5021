#!/usr/bin/env bash
# Makes Oxia's messages for Python from their description. Needs `pip install grpcio-tools`; its output is committed.
set -euo pipefail
cd "$(dirname "$0")/../src/lakestream/metadata/stores/oxia/client/wire"
"${PYTHON:-../../../../../../.venv/bin/python}" -m grpc_tools.protoc -I. --python_out=. --pyi_out=. oxia.proto
