// The Oxia server that `make test-all` tests against. Built by `make oxia`: the module has no other use.
module lakestream.invalid/oxia

go 1.24.2

require github.com/oxia-db/oxia v0.14.0
