# One-line targets; .ci/run runs the same commands.
.PHONY: build test check fuzz bench update models oracle

build:
	go build -o bin/memoc ./cmd/memoc

test:
	go test ./...

check:
	test -z "$$(gofmt -l .)" && go vet ./...

fuzz:
	bash .ci/fuzz.sh 30s

bench:
	go test -run '^$$' -bench . ./...

# Rewrites what the repository generates: goldens, docs/ops.md, docs/pipeline.md, pending lists, expectations of scripts.
update: models
	go test ./ir/ops ./ir/conformance ./passes/place ./passes/place/torchsnap ./cmd/memoc -update

models:
	go run ./testdata/models

oracle:
	bash .ci/oracle.sh
