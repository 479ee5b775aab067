package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// zombie finds the child of this process that could not execute its program.
func zombie(name string) (pid int) {
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range tasks {
		list, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, number := range strings.Fields(string(list)) {
			stat, err := os.ReadFile("/proc/" + number + "/stat")
			if err != nil || !strings.Contains(string(stat), "("+name+") Z ") {
				continue
			}
			if _, err := fmt.Sscan(number, &pid); err == nil {
				return pid
			}
		}
	}
	return 0
}
