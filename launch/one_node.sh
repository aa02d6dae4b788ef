#!/usr/bin/env bash
# Train on every GPU of this machine with one set of processes for all stages (torchrun):
#   launch/one_node.sh stage=dpo recipe=paper_ood
#   PROCESSES=4 LAUNCHER=accelerate launch/one_node.sh stage=dpo recipe=paper_ood train.distributed=zero2
# Without train.distributed=... on the command line it is zero3, whatever the recipe says; fsdp does without DeepSpeed.
# The first process makes what needs no help, the others wait for it. python -m judgetrain train.distributed=zero3 does
# the same with new processes for every stage that trains.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [[ $# -eq 0 ]]; then
  echo "usage: [PROCESSES=N] [LAUNCHER=torchrun|accelerate] one_node.sh stage=STAGE recipe=RECIPE key=value ..." >&2
  exit 2
fi
# PyTorch counts what it will use: it knows CUDA_VISIBLE_DEVICES, and parts of a GPU (MIG).
processes=${PROCESSES:-$(python -c "import torch; print(torch.cuda.device_count())")}
if [[ $processes -lt 1 ]]; then
  echo "one_node.sh: no GPU here; set PROCESSES=2 to train in two processes on the CPU" >&2
  exit 2
fi
mode=train.distributed=zero3
for argument in "$@"; do
  if [[ $argument == train.distributed=* ]]; then mode=; fi
done
if [[ $processes -eq 1 ]]; then
  exec python -m judgetrain ${mode:+"$mode"} train.processes=1 "$@"
fi
case ${LAUNCHER:-torchrun} in
  torchrun)
    exec torchrun --standalone --nproc_per_node "$processes" -m judgetrain ${mode:+"$mode"} "$@"
    ;;
  accelerate)
    exec accelerate launch --config_file "$here/accelerate/one_node.yaml" --num_processes "$processes" \
      -m judgetrain ${mode:+"$mode"} "$@"
    ;;
  *)
    echo "one_node.sh: LAUNCHER=$LAUNCHER: allowed are torchrun and accelerate" >&2
    exit 2
    ;;
esac
