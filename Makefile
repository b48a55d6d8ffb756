.PHONY: setup demo test test-all lint

VLMC := $(or $(CARGO_TARGET_DIR),target)/release/vlmc

setup:
	@.ci/setup

demo: setup
	cargo build --release -p vlmc
	$(VLMC) demo

test: setup
	cargo test --workspace

test-all: setup
	cargo test --workspace -- --include-ignored

lint: setup
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	tests/lint.sh
