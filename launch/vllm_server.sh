#!/usr/bin/env bash
# Serve a model behind an OpenAI-compatible endpoint, to be a teacher or a response model:
#   launch/vllm_server.sh Qwen/Qwen2.5-7B-Instruct 8000
#   python -m judgetrain recipe=pairs teacher.engine.type=openai teacher.engine.base_url=http://localhost:8000/v1 \
#     teacher.engine.model=Qwen/Qwen2.5-7B-Instruct
# Without --generation-config vllm it would add the penalties and top_k of the model's generation_config.json.
set -euo pipefail
model=${1:?usage: vllm_server.sh MODEL [PORT]}
exec vllm serve "$model" --port "${2:-8000}" --enable-prefix-caching --generation-config vllm
