package keeper

// adoptOrphans does nothing here: orphans go to the first process of the system,
// and are found by their marks.
func adoptOrphans() error { return nil }

// anyEnded leaves it to the caller to wait: the only child is the host.
func anyEnded() (pid int, err error) { return -1, nil }
