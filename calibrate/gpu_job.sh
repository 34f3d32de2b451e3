#!/usr/bin/env bash
# One command on a GPU, at most nine minutes on an H200: measures Llama-3.1-8B (bf16, random
# weights), serves an Azure-like trace for real under static, mixed and chunked scheduling, compares
# with the simulation, and leaves raw CSV, profile, tables and pictures in a folder.
#
#   calibrate/gpu_job.sh [OUT]          default: results/h200
#
# Every line can be tried on a CPU:   ITERSIM_DRY_RUN=1 calibrate/gpu_job.sh /tmp/dry
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-results/h200}
python=${PYTHON:-python3}

if [ -n "${ITERSIM_DRY_RUN:-}" ]; then
  model=tiny device=cpu dtype=fp32 minutes=1 passes=1
  spec=experiments/configs/validate_dry_run.yaml
else
  model=llama-3.1-8b device=cuda dtype=bf16 minutes=3.5 passes=1
  spec=experiments/configs/validate_gpu.yaml
fi

mkdir -p "$out"
if command -v nvidia-smi > /dev/null; then
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,power.limit,temperature.gpu \
    --format=csv > "$out/gpu.csv"
fi
"$python" -m experiments validate "$spec" --model "$model" --device "$device" --dtype "$dtype" \
  --minutes "$minutes" --passes "$passes" --out "$out" | tee "$out/stdout.txt"
for file in calibration/raw.csv profile.yaml bars.csv latencies.csv iterations.csv ranking.csv \
  each.csv latencies-spread.png latencies-burst.png iterations.png summary.txt; do
  test -s "$out/$file" || { echo "gpu_job: $out/$file is missing" >&2; exit 1; }
done
"$python" -m experiments check "$spec"
echo "gpu_job: done, in $out"
