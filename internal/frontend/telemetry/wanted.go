package telemetry

import (
	"fmt"
	"strings"
)

// Modes of the setting telemetry.mode.
const (
	Auto = "auto" // as the variables of OpenTelemetry say
	On   = "on"
	Off  = "off"
)

// Wanted reports whether the setting and the variables of OpenTelemetry ask for traces, and which requests it cannot
// meet. Without OTEL_TRACES_EXPORTER, an endpoint or the mode on asks for traces.
func Wanted(mode string, env func(string) string) (traces bool, problems []string) {
	if mode == Off || strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	for _, signal := range []string{"METRICS", "LOGS"} {
		endpoint := "OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT"
		if by := env("OTEL_" + signal + "_EXPORTER"); by != "" && by != "none" || by == "" && env(endpoint) != "" {
			problems = append(problems, strings.ToLower(signal)+" are not exported, only traces")
		}
	}
	switch by := env("OTEL_TRACES_EXPORTER"); by {
	case "":
		if mode != On && env("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && env(endpointVariable) == "" {
			return false, problems
		}
	case "otlp":
	case "none":
		return false, problems
	default:
		return false, append(problems, fmt.Sprintf("OTEL_TRACES_EXPORTER is %.40q: only otlp and none are known", by))
	}
	variable := "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	if env(variable) == "" {
		variable = "OTEL_EXPORTER_OTLP_PROTOCOL"
	}
	// A collector that reads http/protobuf reads JSON at the same address.
	if p := env(variable); p != "" && p != "http/protobuf" && p != "http/json" {
		return false, append(problems, fmt.Sprintf("%s is %.40q: only OTLP over HTTP is sent (set it to http/json, "+
			"and the endpoint to the port of the collector for HTTP, which often is 4318)", variable, p))
	}
	return true, problems
}
