package builtin

import "github.com/drover-dev/drover/internal/driver/monitor"

// Monitor is something that a client watches.
func (k *Kinds) Monitor(client monitor.Client, w monitor.Watch) Work {
	return Work{Driver: k.monitors.For(client, w), Input: encode(w)}
}
