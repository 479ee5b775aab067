//go:build linux && !amd64 && !arm64

package process

// waits is empty: the numbers of the system calls are not known for this architecture.
func waits() map[int]call { return nil }
