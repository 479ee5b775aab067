package process

// AwaitsKeys returns false: the kernel does not report the waits of a process.
func AwaitsKeys(*Table, Identity) bool { return false }
