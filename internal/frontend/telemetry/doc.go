// Package telemetry exports what a session does by OTLP over HTTP: traces, metrics and logs with the
// semantic conventions of OpenTelemetry for generative AI. See docs/telemetry.md.
//
// It follows the events that a session has anyway: those of its agents and those of its log. The engine
// knows nothing of spans. [Exporter.Agent] takes an event within a microsecond and gives it to a queue; where
// the queue is full, the event is dropped and counted. One goroutine makes spans and records of the
// queue, and the OpenTelemetry SDK sends them with bounded queues of its own. A collector that cannot be
// reached slows nothing but the end of the process, by two seconds at most.
//
// Text of users, models, tools and files leaves the process only where [Config] says Content.
package telemetry
