package keeper

// adoptOrphans does nothing here: orphans go to the first process of the system,
// and are found by their marks.
func adoptOrphans() error { return nil }
