package telemetry_test

import (
	"strings"
	"testing"

	"github.com/drover-dev/drover/internal/frontend/telemetry"
)

func TestWanted(t *testing.T) {
	for _, c := range []struct {
		mode, env string
		want      bool
		problem   string
	}{
		{"auto", "", false, ""},
		{"on", "", true, ""},
		{"auto", "OTEL_EXPORTER_OTLP_ENDPOINT=http://x", true, ""},
		{"off", "OTEL_EXPORTER_OTLP_ENDPOINT=http://x OTEL_LOGS_EXPORTER=otlp", false, ""},
		{"on", "OTEL_SDK_DISABLED=TRUE", false, ""},
		{"auto", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT=http://x", false, "logs are not exported"},
		{"auto", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://x", true, ""},
		{"auto", "OTEL_TRACES_EXPORTER=otlp", true, ""},
		{"on", "OTEL_TRACES_EXPORTER=none", false, ""},
		{"on", "OTEL_TRACES_EXPORTER=zipkin", false, "zipkin"},
		{"on", "OTEL_METRICS_EXPORTER=none OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://x", true, ""},
		{"on", "OTEL_METRICS_EXPORTER=otlp", true, "metrics are not exported"},
		{"on", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", true, ""},
		{"on", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", false, "OTEL_EXPORTER_OTLP_PROTOCOL"},
		{"on", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json", true, ""},
	} {
		got, problems := telemetry.Wanted(c.mode, variables(c.env))
		if got != c.want {
			t.Errorf("%s %s: %v", c.mode, c.env, got)
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
