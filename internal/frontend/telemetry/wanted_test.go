package telemetry_test

import (
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/frontend/telemetry"
)

func TestWanted(t *testing.T) {
	all, none := telemetry.Signals{Traces: true, Metrics: true, Logs: true}, telemetry.Signals{}
	for _, c := range []struct {
		mode, env string
		want      telemetry.Signals
		problem   string
	}{
		{"auto", "", none, ""},
		{"on", "", all, ""},
		{"auto", "OTEL_EXPORTER_OTLP_ENDPOINT=http://x", all, ""},
		{"off", "OTEL_EXPORTER_OTLP_ENDPOINT=http://x", none, ""},
		{"on", "OTEL_SDK_DISABLED=TRUE", none, ""},
		{"auto", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT=http://x", telemetry.Signals{Logs: true}, ""},
		{"auto", "OTEL_TRACES_EXPORTER=otlp", telemetry.Signals{Traces: true}, ""},
		{"on", "OTEL_METRICS_EXPORTER=none", telemetry.Signals{Traces: true, Logs: true}, ""},
		{"on", "OTEL_METRICS_EXPORTER=prometheus", telemetry.Signals{Traces: true, Logs: true}, "prometheus"},
		{"on", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", all, ""},
		{"on", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", none, "OTEL_EXPORTER_OTLP_PROTOCOL"},
		{"on", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc OTEL_EXPORTER_OTLP_LOGS_PROTOCOL=http/json",
			telemetry.Signals{Logs: true}, "OTEL_EXPORTER_OTLP_PROTOCOL"},
	} {
		got, problems := telemetry.Wanted(c.mode, variables(c.env))
		if got != c.want {
			t.Errorf("%s %s: %+v", c.mode, c.env, got)
		}
		if len(problems) > 1 || (c.problem != "") != (len(problems) == 1) ||
			len(problems) == 1 && !strings.Contains(problems[0], c.problem) {
			t.Errorf("%s %s: problems are %q, want one with %q", c.mode, c.env, problems, c.problem)
		}
	}
}

func variables(list string) func(string) string {
	env := map[string]string{}
	for _, pair := range strings.Fields(list) {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	return func(name string) string { return env[name] }
}
