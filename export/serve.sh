#!/usr/bin/env bash
# Exports a run, serves it by TensorFlow Serving in Docker, and asks it for a translation:
#   export/serve.sh RUN [TEXT]
# With SERVING_GPU=1, on the machine's NVIDIA GPUs.
set -euo pipefail

run=${1:?"usage: serve.sh RUN [TEXT]"}
if [[ ! -d $run ]]; then
  echo "Expected the directory of a run. Received: $run" >&2
  exit 2
fi
run=$(realpath "$run")
text=${2:-"A dog runs on the beach."}
cd "$(dirname "${BASH_SOURCE[0]}")"

if ! docker compose version > /dev/null 2>&1; then
  echo "Expected Docker with its compose plugin: \`docker compose version\` fails. Without it, serve by:" >&2
  echo "  keras-transformer export $run $PWD/models/translator" >&2
  echo "  keras-transformer serve $PWD/models/translator" >&2
  exit 2
fi

new=$(keras-transformer export "$run" models/translator --n-best 4)
new=${new##*/}
# what the label stable names goes on serving, if it is there; the new version is the canary
stable=$(sed -n '/"stable"/{n;s/[^0-9]//g;p;}' models.config)
[[ -n $stable && -d models/translator/$stable ]] || stable=$new
versions="versions: $stable"
[[ $stable == "$new" ]] || versions+=$'\n        '"versions: $new"
cat > models.config << CONFIG
# Which versions are served, and by which labels: README.md, "Another version".
model_config_list {
  config {
    name: "translator"
    base_path: "/models/translator"
    model_platform: "tensorflow"
    model_version_policy {
      specific {
        $versions
      }
    }
    version_labels {
      key: "stable"
      value: $stable
    }
    version_labels {
      key: "canary"
      value: $new
    }
  }
}
CONFIG

compose=(docker compose -f compose.yaml)
if [[ ${SERVING_GPU:-0} == 1 ]]; then
  compose+=(-f compose.gpu.yaml)
fi
"${compose[@]}" up --detach --wait --force-recreate

python3 client_rest.py "$text"
python3 client_grpc.py "$text"
echo "Version $new answers at http://127.0.0.1:8501/v1/models/translator (gRPC: 127.0.0.1:8500)."
