#!/usr/bin/env bash
# Exports a run, serves it by TensorFlow Serving in Docker, and asks it for a translation:
#   export/serve.sh RUN [TEXT]
# A running server is not restarted: it loads the new version under the label `canary`.
# SERVING_GPU=1 uses the machine's NVIDIA GPUs. SERVING_CPUS and SERVING_MEMORY limit a new server;
# the defaults are all processors and 4g (8g on GPUs).
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
  echo "Expected Docker with its compose plugin: \`docker compose version\` fails. Without it, serve with:" >&2
  echo "  keras-transformer export $run $PWD/models/translator" >&2
  echo "  keras-transformer serve $PWD/models/translator" >&2
  exit 2
fi

new=$(keras-transformer export "$run" models/translator --n-best 4)
new=${new##*/}
labels=(--canary "$new")
# the stable version keeps its label, if it exists
stable=$(sed -n '/"stable"/{n;s/[^0-9]//g;p;}' models.config)
[[ -n $stable && -d models/translator/$stable ]] || labels+=(--stable "$new")

export SERVING_CPUS=${SERVING_CPUS:-$(nproc)}
compose=(docker compose -f compose.yaml)
if [[ ${SERVING_GPU:-0} == 1 ]]; then
  compose+=(-f compose.gpu.yaml)
fi
if [[ -n $("${compose[@]}" ps --status running --quiet serving) ]]; then
  "${compose[@]}" up --detach --wait --no-recreate # waits until it has started
  python3 reload_config.py "${labels[@]}"
else
  python3 reload_config.py --file-only "${labels[@]}"
  "${compose[@]}" up --detach --wait
fi

python3 client_rest.py "$text"
python3 client_grpc.py "$text"
echo "Version $new answers at http://127.0.0.1:8501/v1/models/translator (gRPC: 127.0.0.1:8500)."
