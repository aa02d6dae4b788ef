#!/usr/bin/env bash
# Train on many nodes:
#   sbatch --nodes 4 launch/slurm.sh stage=dpo recipe=paper_ood output_dir=/shared/outputs
# Without train.distributed=... on the command line it is zero3, whatever the recipe says; fsdp does without DeepSpeed.
# output_dir must lie on a file system that every node sees. Partition, account and time are sbatch's options. A job that
# is killed or pre-empted is queued again and goes on from its last complete checkpoint. Five minutes before its time limit
# every process ends its training step, a checkpoint is written, and the job queues itself again with the same command.
#SBATCH --job-name=judgetrain
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --mem=0
#SBATCH --requeue
#SBATCH --signal=B:USR1@300
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -euo pipefail
: "${SLURM_JOB_NODELIST:?start it with sbatch: sbatch launch/slurm.sh stage=dpo ...}"
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-64}" # srun does not take it over from sbatch
# Of an array each task is a job of its own, which its number in the array names.
job=$SLURM_JOB_ID
if [[ -n ${SLURM_ARRAY_TASK_ID:-} ]]; then
  job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
fi
# A port of its own for every job that a node may run at a time.
port=$((20000 + SLURM_JOB_ID % 20000))
mode=train.distributed=zero3
for argument in "$@"; do
  if [[ $argument == train.distributed=* ]]; then mode=; fi
done
# torchrun hands on the signal that comes before the time limit, and the last step may take what is left; SLURM ends it at
# the limit. An older torchrun, as torch 2.11 has, knows neither option: it hands on SIGTERM, and the last step may take half a
# minute. srun hands on SIGUSR1, but kills its tasks when it gets SIGTERM itself, so that scancel sends that one to them.
ending=(--signals-to-handle "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1" --shutdown-timeout 3600)
if ! options=$(torchrun --help 2>&1); then
  echo "slurm.sh: torchrun cannot be started: $options" >&2
  exit 1
fi
if [[ $options != *--signals-to-handle* ]]; then
  ending=()
fi
# One process that fails ends the job on every node, in place of a hang.
srun --kill-on-bad-exit=1 torchrun \
  --nnodes "$SLURM_JOB_NUM_NODES" \
  --nproc_per_node "${SLURM_GPUS_ON_NODE:-8}" \
  --rdzv_id "$SLURM_JOB_ID" \
  --rdzv_backend c10d \
  --rdzv_endpoint "${nodes[0]}:$port" \
  ${ending[@]+"${ending[@]}"} \
  -m judgetrain ${mode:+"$mode"} "$@" &
run=$!
tell=(kill -USR1 "$run")
if ((${#ending[@]} == 0)); then
  tell=(scancel --signal=TERM "$job")
fi
time_is_up=
trap 'time_is_up=yes; waits=yes; "${tell[@]}" 2>/dev/null || true' USR1
# A signal ends the wait, not srun, and there may be several of them.
waits=yes
while [[ -n $waits ]]; do
  waits=
  status=0
  wait "$run" || status=$?
done
if [[ -n $time_is_up ]] && ((status != 0)); then
  if ! scontrol requeue "$job"; then
    echo "slurm.sh: SLURM does not queue the job again; submit the same command, which goes on from its last checkpoint" >&2
  fi
fi
exit "$status"
