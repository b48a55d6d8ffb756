.PHONY: setup demo test test-all lint

VLMC := $(or $(CARGO_TARGET_DIR),target)/release/vlmc

setup:
	@.ci/setup

demo: setup
	cargo build --release -p vlmc
	$(VLMC) check models/qwen3_5_vl.vlm --variant tiny
	$(VLMC) eval models/qwen3_5_vl.vlm --variant tiny \
	  --batch models/demo/batch.safetensors --weights init:1
	$(VLMC) compile models/qwen3_5_vl.vlm --variant tiny --packed --tokens 64 --max-docs 4 \
	  --max-patches 64 --max-images 4 --pp 2 --vpp 2 --cp 4 --microbatches 2 -o target/demo
	$(VLMC) run target/demo --batch models/demo/batch.safetensors --weights init:1 --steps 3
	@echo "the plan as a page: target/demo/report.html"

test: setup
	cargo test --workspace --no-fail-fast

test-all: setup
	cargo test --workspace --exclude vlmc-training-tests -- --include-ignored
	cargo test --release -p vlmc-training-tests -- --include-ignored

lint: setup
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	tests/lint.sh
