package process

// Crowd is not implemented on macOS.
func Crowd(int) int { return 0 }
