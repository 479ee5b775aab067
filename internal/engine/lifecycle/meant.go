package lifecycle

import "github.com/drover-dev/drover/task"

// Meant is which of several tasks a name means that all of them go by, newest first: the
// newest that lives, else the newest. There must be one.
func Meant(named []task.Record) task.Record {
	for _, r := range named {
		if !r.Status.Terminal() {
			return r
		}
	}
	return named[0]
}
