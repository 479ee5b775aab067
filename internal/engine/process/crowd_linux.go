package process

// Crowd is the number of processes that can be seen here, if it is above the limit,
// and else 0. Where the machine has fewer threads than that, which is usual, it reads
// one short line.
func Crowd(limit int) int {
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
