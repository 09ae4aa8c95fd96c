.DEFAULT_GOAL := help
GO ?= go
LINT = $(GO) tool -modfile=tools/go.mod golangci-lint

.PHONY: help build test unit race conformance kill lint bench fmt torture

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

build: ## build bin/perdure
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/perdure ./cmd/perdure

test: ## everything that CI runs; installs what it needs where it can
	./scripts/test

unit: ## the tests of the packages, without race detector
	$(GO) test ./...

race: ## the tests of the packages, with race detector
	$(GO) test -race ./...

lint: ## vet and linters
	$(GO) vet ./...
	$(GO) vet -tags failpoint ./...
	$(LINT) run ./...

fmt: ## format the code
	$(LINT) fmt

bench: ## the benchmarks of a turn
	$(GO) test -run - -bench . -benchtime 300x ./test/bench

torture: ## thousands of kills instead of hundreds
	KILLS=5000 $(GO) test -timeout 4h -count=1 ./test/kill
