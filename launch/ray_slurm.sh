#!/usr/bin/env bash
# Sample on many nodes: a Ray cluster over a SLURM job, and the command with executor=ray on its first node:
#   sbatch --nodes 4 launch/ray_slurm.sh stage=tree recipe=paper_ood output_dir=/shared/outputs
# What trains is done by the first node's GPUs; train over all nodes with launch/slurm.sh on the same output_dir, which
# takes up what is here. output_dir and the models must lie where every node sees them, and each node needs judgetrain in
# the same environment: pip install "judgetrain[ray,vllm]". A job that is pre-empted is queued again and goes on. So is one
# that comes to its time limit: five minutes before it the command ends, and keeps every shard that is done.
#SBATCH --job-name=judgetrain-ray
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
: "${SLURM_JOB_NODELIST:?start it with sbatch: sbatch launch/ray_slurm.sh stage=tree ...}"
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-64}" # srun does not take it over from sbatch
address=$(srun --nodes 1 --ntasks 1 --overlap --nodelist "$head" hostname --ip-address | awk '{print $1}')
# Of an array each task is a job of its own, which its number in the array names.
job=$SLURM_JOB_ID
if [[ -n ${SLURM_ARRAY_TASK_ID:-} ]]; then
  job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
fi
# A port of its own for every job that a node may run at a time.
export RAY_ADDRESS="$address:$((20000 + SLURM_JOB_ID % 20000))"
# Who has no token is not let in: one of this job's own, which srun hands to every node.
export RAY_AUTH_MODE=token
RAY_AUTH_TOKEN="${RAY_AUTH_TOKEN:-$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')}"
export RAY_AUTH_TOKEN
# What a worker has started (vLLM's engine, which holds the GPU) ends with it, also where it is killed.
export RAY_process_group_cleanup_enabled=true
resources=(--num-cpus "${SLURM_CPUS_PER_TASK:-64}" --num-gpus "${SLURM_GPUS_ON_NODE:-8}" --disable-usage-stats --block)
started=()
trap 'kill "${started[@]}" 2>/dev/null || true' EXIT
srun --nodes 1 --ntasks 1 --overlap --nodelist "$head" \
  ray start --head --node-ip-address "$address" --port "${RAY_ADDRESS##*:}" "${resources[@]}" &
started+=("$!")
for _ in {1..60}; do
  if ray status --address "$RAY_ADDRESS" >/dev/null 2>&1; then break; fi
  sleep "${WAIT:-2}"
done
if [[ ${#nodes[@]} -gt 1 ]]; then
  srun --nodes "$((${#nodes[@]} - 1))" --ntasks "$((${#nodes[@]} - 1))" --overlap --exclude "$head" \
    ray start --address "$RAY_ADDRESS" "${resources[@]}" &
  started+=("$!")
fi
# executor.workers counts what is there when the first shards are handed out: wait until every node has joined.
python - "${#nodes[@]}" <<'PYTHON'
import sys, time
import ray
ray.init(address="auto", log_to_driver=False)
for _ in range(150):
    if sum(node["Alive"] for node in ray.nodes()) >= int(sys.argv[1]):
        break
    time.sleep(2)
else:
    sys.exit("ray_slurm.sh: not every node has joined the cluster within five minutes")
PYTHON
srun --nodes 1 --ntasks 1 --overlap --nodelist "$head" python -m judgetrain executor=ray "$@" &
run=$!
# As in slurm.sh, but for torchrun's signal: sbatch copies one script to the node, so that the two can share no file.
time_is_up=
trap 'time_is_up=yes; waits=yes; kill -USR1 "$run" 2>/dev/null || true' USR1
# A signal ends the wait, not srun, and there may be several of them.
waits=yes
while [[ -n $waits ]]; do
  waits=
  status=0
  wait "$run" || status=$?
done
if [[ -n $time_is_up ]] && ((status != 0)); then
  if ! scontrol requeue "$job"; then
    echo "ray_slurm.sh: SLURM does not queue the job again; submit the same command, which goes on from its last checkpoint" >&2
  fi
fi
exit "$status"
