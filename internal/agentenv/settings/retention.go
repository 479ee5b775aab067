package settings

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Retention is how long ended sessions are kept. Both bounds hold; one that is
// not set is none.
type Retention struct {
	Age   string `json:"age,omitempty" jsonschema:"since their end, such as 30d or 12h; at least 1h"`
	Bytes int64  `json:"bytes,omitempty" jsonschema:"of all sessions together, 1000000 or more: beyond it those that ended first go first"`
}

// leastAge is what a slip of the pen must not go below.
const leastAge = time.Hour

// Limit is Age as a duration; 0: any.
func (r Retention) Limit() time.Duration {
	d, err := ParseAge(r.Age)
	if err != nil {
		return 0
	}
	return d
}

// ParseAge reads a duration that may be in whole days, such as 30d.
func ParseAge(text string) (time.Duration, error) {
	if number, ok := strings.CutSuffix(text, "d"); ok {
		days, err := strconv.ParseUint(number, 10, 16)
		if err == nil {
			return time.Duration(days) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%.40q is not an age such as 30d or 12h", text)
	}
	return d, nil
}

// retention leaves out what is no bound: a wrong one would remove what somebody
// wants.
func (l *loader) retention(source string, before Retention) {
	r := &l.set.Tasks.Retention
	if d, err := ParseAge(r.Age); r.Age != "" && (err != nil || d < leastAge) {
		l.note(source, "tasks.retention.age %.40q is not an age such as 30d, or less than 1h, and is ignored", r.Age)
		r.Age = before.Age
	}
	if r.Bytes != 0 && r.Bytes < 1_000_000 {
		l.note(source, "tasks.retention.bytes %d is less than 1000000, and is ignored", r.Bytes)
		r.Bytes = before.Bytes
	}
}
