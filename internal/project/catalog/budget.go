package catalog

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/drover-dev/drover/task"
)

// budget returns the limit of the agent together with all agents below it. An invalid
// budget refuses the definition: without it the agent would be unlimited.
func (r *reader) budget() (b task.Budget) {
	f, ok := r.get("budget")
	if !ok || f.Value == nil {
		return b
	}
	const fix = "write it as in {usd: 1.5, tokens: 200000, wall: 30m, output: 10000000}"
	parts, object := f.Value.(map[string]any)
	if !object {
		r.say(Error, "budget", "budget is no object, so nobody knows what the agent may spend", fix)
		return b
	}
	for _, key := range slices.Sorted(maps.Keys(parts)) {
		text := fmt.Sprint(parts[key])
		var good bool
		switch key {
		case "usd":
			n, err := strconv.ParseFloat(text, 64)
			b.USD, good = n, err == nil && n > 0 && n < 1e9
		case "tokens":
			b.Tokens, good = whole(text)
		case "wall":
			d, err := time.ParseDuration(text)
			b.WallMS, good = d.Milliseconds(), err == nil && d >= time.Millisecond
		case "output":
			b.OutputBytes, good = whole(text)
		}
		if !good {
			r.say(Error, "budget",
				fmt.Sprintf("budget has %.40q: %.40q, so nobody knows what the agent may spend", key, text), fix)
		}
	}
	return b
}

// whole parses a whole number above 0, also in the form 1e6.
func whole(text string) (int64, bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, n > 0
	}
	n, err := strconv.ParseFloat(text, 64)
	return int64(n), err == nil && n >= 1 && n < 1e15 && n == float64(int64(n))
}
