package process

// CountAbove returns the number of visible processes if it is above the limit, and else 0. If the
// machine has fewer threads than that, the usual case, it reads only one short line.
func CountAbove(limit int) int {
	if data, err := readCounts("/proc/loadavg"); err == nil {
		if threads, ok := parseLoad(data); ok && threads <= limit {
			return 0
		}
	}
	pids, err := listed()
	if err != nil || len(pids) <= limit {
		return 0
	}
	return len(pids)
}
