package worker

import (
	"os"
	"runtime"
	"strconv"
	"strings"
)

// load is how busy the machine is, per processor.
func load() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	first, _, _ := strings.Cut(string(text), " ")
	n, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return -1
	}
	return n / float64(runtime.NumCPU())
}
