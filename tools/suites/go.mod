// franz-go, for the tests that it runs against brokers. Built by `make suites`: the module has no other use.
module lakestream.invalid/suites

go 1.26.0

require github.com/twmb/franz-go v1.22.2
