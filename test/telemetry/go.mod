module github.com/drover-dev/drover/test/telemetry

go 1.26.0

require (
	github.com/drover-dev/drover v0.0.0-00010101000000-000000000000
	go.opentelemetry.io/proto/otlp v1.11.0
	google.golang.org/protobuf v1.36.11
)

require github.com/google/uuid v1.6.0 // indirect

replace github.com/drover-dev/drover => ../..
