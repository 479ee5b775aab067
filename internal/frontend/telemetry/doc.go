// Package telemetry exports the traces of a session by OTLP over HTTP, with the semantic conventions of
// OpenTelemetry for generative AI (1.41.0). See docs/telemetry.md. It exports no metrics and no logs.
//
// It follows the events of the session's agents and of its log; the engine knows nothing of spans. [Exporter.Agent]
// queues an event within a microsecond, and drops and counts it if the queue is full. One goroutine turns the queue
// into spans, which the OpenTelemetry SDK sends from bounded queues of its own. An unreachable collector delays only
// the end of the process, by at most two seconds.
//
// Texts of users, models, tools and files leave the process only with [Config.Content].
package telemetry
