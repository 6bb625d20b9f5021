#!/usr/bin/env bash
# Builds the tests of other people's clients into the directory that is named: franz-go's from its Go
# module, librdkafka's from the Rust package that carries its source. None of their code is kept in this repository.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
target=$(cd "$1" && pwd)

if ! command -v go >/dev/null; then
  echo "franz-go's tests want Go 1.26 or newer" >&2
else
  cd "$here"
  [ -x "$target/franz-go.test" ] || go test -mod=mod -c -o "$target/franz-go.test" github.com/twmb/franz-go/pkg/kgo
fi

[ -x "$target/librdkafka/tests/test-runner" ] && exit 0
if ! command -v cargo >/dev/null || ! command -v g++ >/dev/null; then
  echo "librdkafka's tests want cargo, which fetches them, gcc and g++" >&2
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
touch "$work/empty.rs"
cat >"$work/Cargo.toml" <<'TOML'
[package]
name = "suites"
version = "1.0.0"
edition = "2021"
[lib]
path = "empty.rs"
[dependencies]
rdkafka-sys = { version = "=4.10.0", default-features = false }
TOML
CARGO_HOME="$work/cargo" cargo fetch --quiet --manifest-path "$work/Cargo.toml"
mv "$work"/cargo/registry/cache/*/rdkafka-sys-*.crate "$work"
(cd "$work" && sha256sum --quiet --check "$here/SHA256SUMS" && tar xzf rdkafka-sys-*.crate)
rm -rf "$target/librdkafka"
mv "$work"/rdkafka-sys-*/librdkafka "$target/librdkafka"
cd "$target/librdkafka"
{ ./configure --disable-sasl && make -j2 libs && make -j2 -C tests build; } >"$target/librdkafka.log" 2>&1
