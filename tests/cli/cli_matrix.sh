#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every data kind, operation and pair of formats is generated, run, and comes out the same from every backend that
# works here, any thread count, and the fused path.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/cli_lib.sh"

formats=(f32 f16 bf16 e4m3fn e4m3fnuz e5m2 e5m2fnuz)
contracts=(vllm aiter atom sglang flashinfer tie=higher,nan=bits,zero=equal,order=id)
"$m3idx" info >info
mapfile -t backends < <(sed -n '/: cannot: /d; s/^backend \([a-z]*\): .*/\1/p' info)
echo "backends: ${backends[*]}"
cases=0

# judge OPTION...: one case, its golden, and everything that must agree with it.
judge() {
  local backend
  cases=$((cases + 1))
  expect 0 "$m3idx" gen "$@" --seed $cases -o case
  expect 0 "$m3idx" run case -o golden --backend ref --threads 1
  for backend in "${backends[@]}"; do
    expect 0 "$m3idx" run case -o other --backend "$backend" --threads 3
    expect 0 "$m3idx" verify golden other
    expect 0 "$m3idx" run case -o fused --backend "$backend" --no-score
    expect 0 "$m3idx" verify fused golden
  done
}

i=0
for data in normal ties specials wide near; do
  for q in "${formats[@]}"; do
    for k in "${formats[@]}"; do
      common=(--q-dtype "$q" --k-dtype "$k" --data "$data" --contract "${contracts[i++ % 6]}" --head-dim 16)
      if ((i % 2)); then
        judge --op decode --seq-lens 0,3,517,1030 --decode-query-len 2 --heads 2 --topk 3 --init $((i % 3)) \
          --local 1 --sparse-table 1 "${common[@]}"
      else
        judge --op prefill --q-lens 3,0,2 --prefix-lens 0,9,131 --heads 2 --topk 4 --block-size 16 --local 1 \
          --scale 0.25 "${common[@]}"
      fi
    done
    # The other operation, once for each format.
    if ((i % 2)); then
      judge --op decode --seq-lens 517,33 --block-size 32 --topk 5 "${common[@]}"
    else
      judge --op prefill --q-lens 2,3 --prefix-lens 300,0 --topk 2 --sparse-table 1 --attention-table 1 \
        --page-stride 16 "${common[@]}"
    fi
  done
  for contract in "${contracts[@]}"; do
    judge --op select --num-blocks 0,1,74,128,129,700 --heads 2 --topk 16 --data $data --contract "$contract" --local 1
  done
done
echo "$cases cases"
finish
