package process

// AwaitsKeys sees nothing: the kernel does not tell what a process waits for.
func AwaitsKeys(*Table, Identity) bool { return false }
