#!/bin/sh
# Holds the service at SEXTANT_SERVER, which has a model MODEL, against the description of the Open Inference Protocol:
# requests made up from it by schemathesis, no fault and no answer that it lacks. Needs git and schemathesis.
set -eu

SERVER=${SEXTANT_SERVER:-http://127.0.0.1:8080}
REVISION=d49cc23
FOLDER=$(mktemp -d)
trap 'rm -rf "$FOLDER"' EXIT

git clone --quiet "${PROTOCOL:-https://github.com/kserve/open-inference-protocol}" "$FOLDER/protocol"
git -C "$FOLDER/protocol" checkout --quiet "$REVISION"

# It writes `${MODEL_NAME}` for a parameter of the path, where OpenAPI has no dollar.
sed 's/\${/{/g' "$FOLDER/protocol/specification/protocol/open_inference_rest.yaml" > "$FOLDER/protocol.yaml"
cat > "$FOLDER/schemathesis.toml" <<END
[parameters]
"path.MODEL_NAME" = "${MODEL:-mlp}"
"path.MODEL_VERSION" = "1"
END
schemathesis --config-file "$FOLDER/schemathesis.toml" run "$FOLDER/protocol.yaml" --url "$SERVER" --no-color \
    --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance \
    --max-examples 200 --seed "${SEED:-1}"
