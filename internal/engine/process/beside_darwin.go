package process

// Beside is true: macOS has one network for all processes.
func Beside(int) bool { return true }
