#!/usr/bin/env bash
# Compiles models under several budgets and holds the written files against the
# ONNX checker and ONNX Runtime. Models outside the repository are used where
# they are there.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$(bash .ci/venv.sh)
go build -o bin/memoc ./cmd/memoc
train=--train,--loss,loss
static=--dim,batch=2,--dim,seq=12
shared=../shared/models
specs=()
add() { # model, flags: once with copies, once with recomputation alone
  [ -f "$1" ] || return 0
  specs+=("$1${2:+,$2},--budget,60%" "$1${2:+,$2},--host-budget,0,--budget,50%")
}
add testdata/models/gpt-tiny.onnx $train
add testdata/models/llama-tiny.onnx $train
add $shared/gpt2_dynamo18/model.onnx $train,$static
add $shared/llama_dynamo18/model.onnx $train,$static
add $shared/gpt2_sdpa_dynamo23/model.onnx $train
add $shared/llama_sdpa_dynamo23/model.onnx $train
add $shared/bert_mlm_dynamo20/model.onnx $train
add $shared/step_torch_gpt2_dynamo18/model.onnx ""
add $shared/step_torch_llama_dynamo18/model.onnx ""
specs+=("testdata/models/gpt-tiny.onnx,$train,--mlp-chunks,3,--budget,60%")
specs+=("testdata/models/llama-tiny.onnx,$train,--mlp-chunks,4,--budget,50%")
split=--device,testdata/devices/slow.json,--policy,memo,--tile,4,--budget,80% # host memory for a part of each layer
specs+=("testdata/models/gpt-tiny.onnx,$train,$split,--host-budget,150KiB")
specs+=("testdata/models/llama-tiny.onnx,$train,$split,--host-budget,100KiB")
"$venv/bin/python" .ci/oracle.py bin/memoc "${specs[@]}"
MEMOC_PYTHON="$venv/bin/python" go test -count=1 -run TestSplitsInONNXRuntime ./passes
"$venv/bin/python" .ci/place_oracle.py
MEMOC_PYTHON="$venv/bin/python" go test -count=1 -run 'TestPythonReadsIt|TestText$' ./ir ./ir/conformance
problems=$(mktemp -d)
trap 'rm -rf "$problems"' EXIT
MEMOC_PROBLEMS=$problems go test -count=1 -run 'TestOracle$|TestAgainstEveryChoiceAndLimit|TestFasterCopies' ./passes/plan
# How far a bound is proven in the time given is no property of the change: what was proven once is held by
# TestAgainstProvenBounds, which always runs.
"$venv/bin/python" .ci/plan_oracle.py --from 4 --seconds 20 "$problems"/step-16-{1,2,4}.json ||
  echo "not all bounds were proven in the time given"
