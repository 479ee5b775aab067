package keeper

import "time"

// adoptOrphans does nothing here: orphans go to the first process of the system,
// and are found by their marks.
func adoptOrphans() error { return nil }

// now is the present as a start time of processes.
func now() uint64 { return uint64(time.Now().UnixMicro()) }
