package process

// AwaitsKeys returns false: the kernel does not report what a process waits for.
func AwaitsKeys(*Table, Identity) bool { return false }
