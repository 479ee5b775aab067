package telemetry

import (
	"fmt"
	"strings"

	"github.com/drover-dev/drover/internal/frontend/telemetry/otlp"
)

// Modes of the setting.
const (
	Auto = "auto" // where variables of OpenTelemetry ask for it
	On   = "on"
	Off  = "off"
)

// Signals are what is exported.
type Signals struct{ Traces, Metrics, Logs bool }

func (s Signals) any() bool { return s.Traces || s.Metrics || s.Logs }

// Wanted returns the signals that the setting and the variables of OpenTelemetry ask for, and what of that
// cannot be done. A signal is wanted where OTEL_TRACES_EXPORTER (METRICS, LOGS) is otlp, and, where that is
// not set, if there is an endpoint for it or the mode is on.
func Wanted(mode string, env func(string) string) (s Signals, problems []string) {
	if mode == Off || strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return s, nil
	}
	one := func(name string) bool {
		switch by := env("OTEL_" + name + "_EXPORTER"); by {
		case "":
			if mode != On && env("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && env(otlp.Signal(name).Endpoint()) == "" {
				return false
			}
		case "otlp":
		case "none":
			return false
		default:
			problems = append(problems, fmt.Sprintf("OTEL_%s_EXPORTER is %.40q: only otlp and none are known", name, by))
			return false
		}
		variable := "OTEL_EXPORTER_OTLP_" + name + "_PROTOCOL"
		if env(variable) == "" {
			variable = "OTEL_EXPORTER_OTLP_PROTOCOL"
		}
		// Who wants http/protobuf gets the same messages as JSON, at the same addresses.
		if p := env(variable); p != "" && p != "http/protobuf" && p != "http/json" {
			problems = append(problems, fmt.Sprintf("%s is %.40q: only OTLP over HTTP is sent "+
				"(set it to http/json, and the endpoint to the port of the collector for HTTP, which often is 4318)",
				variable, p))
			return false
		}
		return true
	}
	s = Signals{Traces: one("TRACES"), Metrics: one("METRICS"), Logs: one("LOGS")}
	return s, distinct(problems)
}

func distinct(in []string) (out []string) {
	seen := map[string]bool{}
	for _, s := range in {
		if !seen[s] {
			out = append(out, s)
		}
		seen[s] = true
	}
	return out
}
