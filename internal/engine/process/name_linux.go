package process

import (
	"fmt"
	"os"
)

// SetName changes the name by which tools such as pkill and top know this process.
func SetName(name string) error {
	if err := os.WriteFile("/proc/self/comm", []byte(name), 0); err != nil {
		return fmt.Errorf("name this process: %w", err)
	}
	return nil
}
